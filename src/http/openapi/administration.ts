// The OpenAPI document of the administration: /admin/v1 on ADMIN_PORT, for programs with ADMIN_TOKEN and for the console.

import { type AdministrationAnswer, administrationAnswers } from '../../contract/administration-answers.js';
import { deletionSubmittedSchema } from '../../contract/answers.js';
import { administration, lengths, retention } from '../../contract/limits.js';
import type { OutcomeCode } from '../../contract/outcomes.js';
import { mayDo, type Right, roles } from '../../contract/roles.js';
import { deletionSchema, exportSchema } from '../../contract/schemas.js';
import { bodyCodes, json, type OpenApiPart, refusals } from './document.js';
import { formatParameter } from './user-export.js';

const text = { type: 'string' };
const texts = { type: 'array', items: text };
const choice = (...values: string[]) => ({ type: 'string', enum: values });

type Operation = {
  readonly method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  readonly path: string;
  readonly id: AdministrationAnswer;
  readonly summary: string;
  /** Who may; `self`: the person who is signed in to the console; `open`: everybody, from a page of the console. */
  readonly right: Right | 'self' | 'open';
  readonly body?: Readonly<Record<string, object>>;
  readonly required?: readonly string[];
  /** Whether `?account_id=` narrows it to an account. */
  readonly list?: true;
  /** Other parameters of the query; the ones that `required` names are required. */
  readonly query?: Readonly<Record<string, string>>;
};

const name = { name: text };
/** Exactly one of them. */
const user = { identity: text, user_id: { type: ['integer', 'string'] }, anonymous_id: text };
const keyBody = { name: { ...text, description: 'A further key needs one of its own.' } };

const operations: readonly Operation[] = [
  {
    method: 'get',
    path: '/accounts/{account_id}/callback',
    id: 'showCallback',
    right: 'showCallback',
    summary: 'Where completed deletions are told, without the secret',
  },
  {
    method: 'put',
    path: '/accounts/{account_id}/callback',
    id: 'setCallback',
    right: 'setCallback',
    summary: 'Set it; the answer has the secret, once',
    body: { url: text },
    required: ['url'],
  },
  {
    method: 'delete',
    path: '/accounts/{account_id}/callback',
    id: 'removeCallback',
    right: 'removeCallback',
    summary: 'Remove it',
  },
  {
    method: 'post',
    path: '/accounts/{account_id}/callback/test',
    id: 'testCallback',
    right: 'testCallback',
    summary: 'Call it now',
  },
  {
    method: 'post',
    path: '/certificates/verify',
    id: 'showVerified',
    right: 'showVerified',
    summary: 'Whether a certificate of a deletion is genuine',
    body: {},
  },
  {
    method: 'get',
    path: '/accounts',
    id: 'listAccounts',
    right: 'listAccounts',
    list: true,
    summary: 'Accounts with their environments; `demo` is true for the account of the page /demo',
  },
  {
    method: 'post',
    path: '/accounts',
    id: 'createAccount',
    right: 'createAccount',
    summary: 'Create an account',
    body: {
      ...name,
      environments: {
        ...texts,
        maxItems: administration.environmentsPerAccountMax,
        description: 'Names; the first is Main Production.',
      },
    },
    required: ['name', 'environments'],
  },
  {
    method: 'post',
    path: '/accounts/{account_id}/environments',
    id: 'addEnvironment',
    right: 'addEnvironment',
    summary: 'Add an environment',
    body: name,
    required: ['name'],
  },
  {
    method: 'get',
    path: '/environments/{app_id}',
    id: 'showEnvironment',
    right: 'showEnvironment',
    summary: 'An environment with its settings',
  },
  {
    method: 'patch',
    path: '/environments/{app_id}',
    id: 'setEnvironment',
    right: 'setEnvironment',
    summary: 'Change settings',
    body: {
      main: { const: true, description: 'Makes it the Main Production environment.' },
      validation: choice('strict', 'lenient'),
      limits: {
        type: 'object',
        additionalProperties: { type: ['integer', 'string'] },
        description: 'By name a number, none, or default.',
      },
      allow_identities: {
        type: 'array',
        items: { ...text, minLength: 1, maxLength: lengths.identityMax },
        description: `In addition to the words that are allowed already: at most ${administration.allowedIdentitiesMax} in all.`,
      },
      disallow_identities: { ...texts, description: 'No longer allowed.' },
      write_key: {
        ...choice('required', 'optional'),
        description: 'required needs a write key that is there already.',
      },
      import_until: {
        ...text,
        description: 'A date, a time with offset, or none. The answer has the token, once.',
      },
      retain_days: {
        description: 'Events that were accepted longer ago go within a day, and users without events since.',
        oneOf: [{ type: 'integer', minimum: 1, maximum: retention.daysMax }, choice('none')],
      },
      origins: { description: 'any, or a list of origins.', oneOf: [choice('any'), texts] },
    },
  },
  {
    method: 'get',
    path: '/environments/{app_id}/stats',
    id: 'showStats',
    right: 'showStats',
    summary: 'What was mended, ignored and refused',
  },
  {
    method: 'get',
    path: '/environments/{app_id}/rejected',
    id: 'listRejected',
    right: 'listRejected',
    summary: 'The last records that were refused, without values',
  },
  {
    method: 'get',
    path: '/environments/{app_id}/rejections',
    id: 'showRejections',
    right: 'showRejections',
    summary: 'Rejected records by code and field, by minute or hour; the last minute is a few seconds late',
    query: { span: 'hour, by minutes, or week, by hours.' },
  },
  {
    method: 'get',
    path: '/environments/{app_id}/keys',
    id: 'listKeys',
    right: 'listKeys',
    summary: 'API keys, never the keys themselves',
  },
  {
    method: 'delete',
    path: '/environments/{app_id}/keys/{id}',
    id: 'revokeKey',
    right: 'revokeKey',
    summary: 'Revoke an API key',
  },
  {
    method: 'get',
    path: '/environments/{app_id}/key',
    id: 'showKey',
    right: 'showKey',
    summary: 'When the latest API key was created',
  },
  {
    method: 'post',
    path: '/environments/{app_id}/key',
    id: 'createKey',
    right: 'createKey',
    summary: 'Create an API key; the answer has it, once',
    body: keyBody,
  },
  {
    method: 'put',
    path: '/environments/{app_id}/key',
    id: 'rotateKey',
    right: 'rotateKey',
    summary: 'Replace all API keys, or the one with a name',
    body: { ...name, overlap: { ...text, description: 'How long the former ones stay good, such as 24h.' } },
  },
  {
    method: 'delete',
    path: '/environments/{app_id}/key',
    id: 'revokeKeys',
    right: 'revokeKey',
    summary: 'Revoke all API keys',
  },
  {
    method: 'get',
    path: '/environments/{app_id}/write-keys',
    id: 'listWriteKeys',
    right: 'listWriteKeys',
    summary: 'Write keys, never the keys themselves',
  },
  {
    method: 'post',
    path: '/environments/{app_id}/write-keys',
    id: 'createWriteKey',
    right: 'createWriteKey',
    summary: 'Create a write key; the answer has it, once',
    body: name,
  },
  {
    method: 'delete',
    path: '/environments/{app_id}/write-keys/{id}',
    id: 'revokeWriteKey',
    right: 'revokeWriteKey',
    summary: 'Revoke a write key',
  },
  { method: 'get', path: '/people', id: 'listPeople', right: 'listPeople', list: true, summary: 'People' },
  {
    method: 'post',
    path: '/people',
    id: 'invitePerson',
    right: 'invitePerson',
    summary: 'Invite a person; the answer has the link, once',
    body: {
      email: text,
      role: choice(...roles),
      account_id: {
        ...text,
        description: 'Of every role but operator; people of an account may leave it out.',
      },
    },
    required: ['email', 'role'],
  },
  {
    method: 'delete',
    path: '/people/{person_id}',
    id: 'removePerson',
    right: 'removePerson',
    summary: 'Remove a person',
  },
  {
    method: 'get',
    path: '/audit',
    id: 'listAudit',
    right: 'listAudit',
    list: true,
    query: {
      before: 'With `before_id`: only older ones than the action with this `at`.',
      before_id: 'Its `id`.',
    },
    summary: 'The last 100 actions: who, what, when, from where; to privacy officers their own',
  },
  {
    method: 'get',
    path: '/deletions',
    id: 'listDeletions',
    right: 'listDeletions',
    list: true,
    summary: 'Deletion requests, the newest first, in pages',
    query: {
      state: 'Only of this status or state.',
      reference: 'Only of this reference.',
      cursor: 'Of the page before.',
    },
  },
  {
    method: 'get',
    path: '/deletions/{deletion_request_id}',
    id: 'showDeletion',
    right: 'showDeletion',
    summary: 'A deletion request with its evidence',
  },
  {
    method: 'get',
    path: '/deletions/{deletion_request_id}/users',
    id: 'listDeletionUsers',
    right: 'listDeletionUsers',
    summary: 'What was counted for each user of a complete deletion, by place in the list, without names',
    query: { cursor: 'Of the page before.' },
  },
  {
    method: 'get',
    path: '/deletions/{deletion_request_id}/certificate',
    id: 'showCertificate',
    right: 'showCertificate',
    summary: 'The signed certificate of a complete deletion',
  },
  {
    method: 'get',
    path: '/accounts/{account_id}/user_exports',
    id: 'listExports',
    right: 'listExports',
    summary: 'The latest exports, without names of users',
  },
  {
    method: 'post',
    path: '/accounts/{account_id}/user_exports',
    id: 'submitExportOfAccount',
    right: 'submitExport',
    summary: 'Ask for an export of users',
    body: { users: exportSchema.properties.users },
    required: ['users'],
  },
  {
    method: 'get',
    path: '/accounts/{account_id}/overview',
    id: 'showOverview',
    right: 'showOverview',
    summary: 'What is not well, if anything; how soon records can be queried; pending deletions',
  },
  {
    method: 'get',
    path: '/accounts/{account_id}/traffic',
    id: 'showTraffic',
    right: 'showTraffic',
    summary:
      'Records accepted, repeated, limited and rejected, by minute or hour; the last minute is a few seconds late',
    query: { app_id: 'Only of this environment.', span: 'hour, by minutes, or week, by hours.' },
  },
  {
    method: 'get',
    path: '/deployment',
    id: 'showDeployment',
    right: 'showDeployment',
    summary: 'Shards with their backlog, processes, Redis and ClickHouse',
  },
  {
    method: 'get',
    path: '/environments/{app_id}/event-names',
    id: 'listEventNames',
    right: 'listEventNames',
    summary: 'The events that were accepted lately: how often, and when the first and the last one came',
    query: { days: 'How far back, 7 if it is missing.' },
  },
  {
    method: 'get',
    path: '/environments/{app_id}/event-properties',
    id: 'listEventProperties',
    right: 'listEventProperties',
    summary: 'The properties of an event and of which types their values are, by a sample; no values',
    required: ['event'],
    query: { event: 'The name of the event.', days: 'How far back, 7 if it is missing.' },
  },
  {
    method: 'post',
    path: '/environments/{app_id}/event-properties',
    id: 'readEventProperties',
    right: 'listEventProperties',
    summary: 'The same, for a name that is too long for a URL',
    required: ['event'],
    body: {
      event: { ...text, maxLength: lengths.eventMax },
      days: { type: ['integer', 'string'], description: 'How far back, 7 if it is missing.' },
    },
  },
  {
    method: 'post',
    path: '/environments/{app_id}/live',
    id: 'watchLive',
    right: 'watchLive',
    summary: 'Begin to watch what arrives: the answer has the place to ask from, good for an hour',
  },
  {
    method: 'get',
    path: '/environments/{app_id}/live',
    id: 'showLive',
    right: 'showLive',
    summary: 'The latest 20 events since a place, and the next place',
    required: ['place'],
    query: { place: 'Of the answer before.' },
  },
  {
    method: 'post',
    path: '/environments/{app_id}/user',
    id: 'lookUpUser',
    right: 'lookUpUser',
    summary:
      'What is held about a user: merged names, properties, which events how often, and whether suppressed',
    body: {
      ...user,
      events: {
        type: 'boolean',
        description:
          'false: without `events`, whose counts may take seconds when a user has very many. Default: true.',
      },
    },
  },
  {
    method: 'post',
    path: '/environments/{app_id}/user/event-counts',
    id: 'countUserEvents',
    right: 'countUserEvents',
    summary: 'Which events of a user are stored how often, and the first and the last time of each',
    body: user,
  },
  {
    method: 'post',
    path: '/environments/{app_id}/user/similar',
    id: 'findSimilarUsers',
    right: 'findSimilarUsers',
    summary: 'Other identities that are the same in lower case and without blanks around them',
    body: { identity: text },
    required: ['identity'],
  },
  {
    method: 'post',
    path: '/environments/{app_id}/user/events',
    id: 'readUserEvents',
    right: 'readUserEvents',
    summary: 'The events of a user, the latest first, in pages',
    body: {
      ...user,
      event: { ...text, maxLength: lengths.eventMax, description: 'Only events of this name.' },
      cursor: { ...text, description: 'Of the page before.' },
    },
  },
  {
    method: 'get',
    path: '/accounts/{account_id}/user_suppression',
    id: 'showSuppressed',
    right: 'showSuppressed',
    summary: 'How many users are suppressed; who they are is kept as hashes only',
  },
  {
    method: 'post',
    path: '/accounts/{account_id}/user_suppression',
    id: 'suppressUsersOfAccount',
    right: 'suppressUsers',
    summary: 'Suppress users, or free them',
    body: {
      users: exportSchema.properties.users,
      suppress: {
        type: 'boolean',
        description: 'true: from now on no record of them is stored. false: they are free again.',
      },
    },
    required: ['users', 'suppress'],
  },
  {
    method: 'post',
    path: '/deletions/{deletion_request_id}/end',
    id: 'endDeletion',
    right: 'endDeletion',
    summary: 'End a request whose targets are lost',
  },
  {
    method: 'get',
    path: '/failed',
    id: 'listFailed',
    right: 'listFailed',
    summary: 'Rows that ClickHouse refused, without values',
  },
  {
    method: 'post',
    path: '/failed/retry',
    id: 'retryFailed',
    right: 'retryFailed',
    summary: 'Send them again',
  },
  {
    method: 'get',
    path: '/keys-index',
    id: 'showKeyIndex',
    right: 'showKeyIndex',
    summary: 'The index of idempotency keys',
  },
  {
    method: 'post',
    path: '/keys-index/rebuild',
    id: 'rebuildKeyIndex',
    right: 'rebuildKeyIndex',
    summary: 'Have the workers add the keys of all stored rows to it again; the index says how far they are',
  },
  {
    method: 'get',
    path: '/shards',
    id: 'listShards',
    right: 'listShards',
    summary: 'Which ClickHouse server has which shard, how large it is, and what waits for it',
  },
  {
    method: 'post',
    path: '/restore',
    id: 'restore',
    right: 'restore',
    summary: 'Load the state into an emptied Redis',
  },
  {
    method: 'get',
    path: '/session',
    id: 'showSession',
    right: 'open',
    summary: 'Who is signed in; person is null if no person is',
  },
  {
    method: 'post',
    path: '/session',
    id: 'signIn',
    right: 'open',
    summary: 'Sign in: sets the cookie of a session',
    body: { email: text, password: text, code: { ...text, description: 'Of the second factor.' } },
    required: ['email', 'password'],
  },
  { method: 'delete', path: '/session', id: 'signOut', right: 'self', summary: 'Sign out' },
  {
    method: 'post',
    path: '/invitation',
    id: 'showInvitation',
    right: 'open',
    summary: 'Whom an invitation is for',
    body: { invitation: text },
    required: ['invitation'],
  },
  {
    method: 'post',
    path: '/invitation/accept',
    id: 'acceptInvitation',
    right: 'open',
    summary: 'Choose a password and sign in',
    body: { invitation: text, password: text },
    required: ['invitation', 'password'],
  },
  { method: 'get', path: '/sessions', id: 'listSessions', right: 'self', summary: 'The own sessions' },
  {
    method: 'delete',
    path: '/sessions/{id}',
    id: 'endSession',
    right: 'self',
    summary: 'End an own session',
  },
  {
    method: 'put',
    path: '/password',
    id: 'changePassword',
    right: 'self',
    summary: 'Choose another password; other sessions end',
    body: { password: text, new_password: text },
    required: ['password', 'new_password'],
  },
  {
    method: 'post',
    path: '/second_factor',
    id: 'offerSecondFactor',
    right: 'self',
    summary: 'A new secret for an app; nothing is kept',
  },
  {
    method: 'put',
    path: '/second_factor',
    id: 'setSecondFactor',
    right: 'self',
    summary: 'Turn the second factor on',
    body: { password: text, secret: text, code: text },
    required: ['password', 'secret', 'code'],
  },
  {
    method: 'delete',
    path: '/second_factor',
    id: 'removeSecondFactor',
    right: 'self',
    summary: 'Turn the second factor off',
    body: { password: text },
    required: ['password'],
  },
];

const tagOf = { self: 'Own access', open: 'Sign-in' } as const;

/** Everything on ADMIN_PORT that takes ADMIN_TOKEN or a session. */
export const administrationPart: OpenApiPart = {
  tag: {
    name: 'Administration',
    description:
      'For programs with `Authorization: Bearer ADMIN_TOKEN`, which may do everything, and for people who are signed in to the console, as far as their role allows: what is of another account is answered like what does not exist. Requests with a session other than GET carry the header `Sluice-Console: 1`, and come from a page of the console.',
  },
  securitySchemes: {
    adminToken: { type: 'http', scheme: 'bearer', description: 'The ADMIN_TOKEN of the deployment.' },
    session: {
      type: 'apiKey',
      in: 'cookie',
      name: 'sluice_session',
      description:
        'A session of the console; it ends after 12 hours. If the address of the console has a port, the name ends with it: `sluice_session_8081`.',
    },
  },
  paths: {
    ...pathsOf(operations),
    '/admin/v1/sign_on': signOnPath(
      'beginSignOn',
      'The way of a browser to the provider of single sign-on',
      [],
    ),
    '/admin/v1/sign_on/return': signOnPath(
      'endSignOn',
      'The way back: begins a session, or says at /?sign_on= why not',
      ['code', 'state'],
    ),
    '/admin/v1/user_exports/{user_export_id}/data': {
      get: {
        operationId: 'readExportOfAccount',
        tags: ['Administration'],
        summary: 'Download an export that is complete',
        description: `As the export API sends it. ${rolesText('readExport')}`,
        security: [{ adminToken: [] }, { session: [] }],
        parameters: [{ name: 'user_export_id', in: 'path', required: true, schema: text }, formatParameter],
        responses: {
          200: {
            description: 'The records.',
            content: { 'application/x-ndjson': { schema: text }, 'application/zip': { schema: text } },
          },
          ...refusals([
            'invalid_parameter',
            'unauthorized',
            'forbidden',
            'not_found',
            'not_complete',
            'overloaded',
          ]),
        },
      },
    },
    '/admin/v1/accounts/{account_id}/user_deletion': {
      post: {
        operationId: 'submitDeletionOfAccount',
        tags: ['Administration'],
        summary: 'Submit a deletion',
        description: `As the deletion API takes it, without an API key. ${rolesText('submitDeletion')}`,
        security: [{ adminToken: [] }, { session: [] }],
        parameters: [{ name: 'account_id', in: 'path', required: true, schema: text }],
        requestBody: { required: true, content: json(deletionSchema) },
        responses: {
          201: { description: 'It is stored.', content: json(deletionSubmittedSchema) },
          ...refusals([
            ...bodyCodes,
            'unauthorized',
            'forbidden',
            'not_possible',
            'rate_limited',
            'overloaded',
            'unknown',
          ]),
        },
      },
    },
  },
};

function signOnPath(id: string, summary: string, parameters: readonly string[]) {
  return {
    get: {
      operationId: id,
      tags: [tagOf.open],
      summary,
      description: 'For browsers, where `OIDC_ISSUER` is set.',
      security: [{}],
      parameters: parameters.map((parameter) => ({ name: parameter, in: 'query', schema: text })),
      responses: {
        302: { description: 'Where to go on.', headers: { Location: { schema: text } } },
        ...refusals(['forbidden']),
      },
    },
  };
}

function pathsOf(all: readonly Operation[]): Record<string, object> {
  const paths: Record<string, Record<string, object>> = {};
  for (const operation of all) {
    const path = `/admin/v1${operation.path}`;
    paths[path] = { ...paths[path], [operation.method]: describe(operation) };
  }
  return paths;
}

function describe(operation: Operation): object {
  const { id, summary, right, body, required = [], path, list, query = {} } = operation;
  const isOfConsole = right === 'self' || right === 'open';
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter]) => ({
    name: parameter,
    in: 'path',
    required: true,
    schema: text,
  }));
  const codes: OutcomeCode[] = [
    ...(body === undefined ? [] : bodyCodes),
    ...(list === undefined && Object.keys(query).length === 0 ? [] : (['invalid_parameter'] as const)),
    'not_possible',
    'forbidden',
    'unauthorized',
    ...(right === 'open' ? (['rate_limited'] as const) : []),
    'overloaded',
    'unknown',
  ];
  return {
    operationId: id,
    tags: [isOfConsole ? tagOf[right] : 'Administration'],
    summary,
    description: isOfConsole ? 'For pages of the console.' : rolesText(right),
    security:
      right === 'open' ? [{}] : right === 'self' ? [{ session: [] }] : [{ adminToken: [] }, { session: [] }],
    parameters: [
      ...inPath,
      ...(list === undefined
        ? []
        : [{ name: 'account_id', in: 'query', schema: text, description: 'Only of this account.' }]),
      ...Object.entries(query).map(([parameter, description]) => ({
        name: parameter,
        in: 'query',
        ...(required.includes(parameter) ? { required: true } : {}),
        schema: text,
        description,
      })),
    ],
    ...(body === undefined
      ? {}
      : {
          requestBody: {
            required: required.length > 0,
            content: json({ type: 'object', properties: body, required }),
          },
        }),
    responses: {
      200: { description: 'Done.', content: json(administrationAnswers[id]) },
      ...refusals(codes),
    },
  };
}

function rolesText(right: Right): string {
  const allowed = roles.filter((role) => mayDo(role, right));
  return `Roles: ${allowed.join(', ')}.`;
}
