// The OpenAPI document of the administration: /admin/v1 on ADMIN_PORT, for programs with ADMIN_TOKEN and for the console. The commands
// of administrators describe themselves; what has endpoints of its own is here.

import { rightsElsewhere } from '../../admin/access.js';
import { type Command, isNotSent, routesOf } from '../../admin/command.js';
import { namedCommands } from '../../admin/commands.js';
import { administrationAnswers as answers } from '../../contract/administration-answers.js';
import { deletionSubmittedSchema } from '../../contract/answers.js';
import type { OutcomeCode } from '../../contract/outcomes.js';
import { type Allowed, mayDo, roles } from '../../contract/roles.js';
import { deletionSchema } from '../../contract/schemas.js';
import { type Schema, Type } from '../../contract/typebox.js';
import { bodyCodes, json, type OpenApiPart, refusals } from './document.js';

const text = { type: 'string' };
const word = Type.String();

/** Who may: roles; `self`: the person who is signed in to the console; `open`: everybody, from a page of the console. */
type May = Allowed | 'self' | 'open';
type ObjectSchema = { readonly properties: object; readonly required?: readonly string[] };
type Operation = {
  readonly route: string;
  readonly id: string;
  readonly summary: string;
  readonly may: May;
  /** What it takes besides the path: from the query, or from the body. */
  readonly given: Readonly<Record<string, Schema>>;
  /** Any body, as it came. */
  readonly anyBody?: boolean;
  readonly answer: Schema;
};

/** What people do at the sign-in, and with their own access: endpoints/sign-in.ts. */
const ofPeople: readonly (readonly [
  route: string,
  id: keyof typeof answers,
  may: 'self' | 'open',
  summary: string,
  given?: Operation['given'],
])[] = [
  ['GET /session', 'showSession', 'open', 'Who is signed in; person is null if no person is'],
  [
    'POST /session',
    'signIn',
    'open',
    'Sign in: sets the cookie of a session',
    {
      email: word,
      password: word,
      code: Type.Optional(Type.String({ description: 'Of the second factor.' })),
    },
  ],
  ['DELETE /session', 'signOut', 'self', 'Sign out'],
  ['POST /invitation', 'showInvitation', 'open', 'Whom an invitation is for', { invitation: word }],
  [
    'POST /invitation/accept',
    'acceptInvitation',
    'open',
    'Choose a password and sign in',
    { invitation: word, password: word },
  ],
  ['GET /sessions', 'listSessions', 'self', 'The own sessions'],
  ['DELETE /sessions/:id', 'endSession', 'self', 'End an own session'],
  [
    'PUT /password',
    'changePassword',
    'self',
    'Choose another password; other sessions end',
    { password: word, new_password: word },
  ],
  ['POST /second_factor', 'offerSecondFactor', 'self', 'A new secret for an app; nothing is kept'],
  [
    'PUT /second_factor',
    'setSecondFactor',
    'self',
    'Turn the second factor on',
    { password: word, secret: word, code: word },
  ],
  ['DELETE /second_factor', 'removeSecondFactor', 'self', 'Turn the second factor off', { password: word }],
];

function operationsOf([name, command]: readonly [string, Command]): Operation[] {
  const { summary = '', may, given = {}, textOfBody, answer } = command;
  const shown = Object.entries(given).filter(([field]) => field !== textOfBody && !isNotSent(command, field));
  return routesOf(name, command).map(([route, id]) => ({
    route,
    id,
    summary,
    may,
    given: Object.fromEntries(shown),
    anyBody: textOfBody !== undefined,
    answer: answer ?? Type.Object({}),
  }));
}

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
    ...pathsOf([
      ...namedCommands.flatMap(operationsOf),
      ...ofPeople.map(([route, id, may, summary, given = {}]) => ({
        route,
        id,
        may,
        summary,
        given,
        answer: answers[id],
      })),
    ]),
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
        description: `Lines of JSON, as the export API sends them. ${rolesText(rightsElsewhere.readExport)}`,
        security: [{ adminToken: [] }, { session: [] }],
        parameters: [{ name: 'user_export_id', in: 'path', required: true, schema: text }],
        responses: {
          200: { description: 'The records.', content: { 'application/x-ndjson': { schema: text } } },
          ...refusals(['unauthorized', 'forbidden', 'not_found', 'not_complete', 'overloaded']),
        },
      },
    },
    '/admin/v1/accounts/{account_id}/user_deletion': {
      post: {
        operationId: 'submitDeletionOfAccount',
        tags: ['Administration'],
        summary: 'Submit a deletion',
        description: `As the deletion API takes it, without an API key. ${rolesText(rightsElsewhere.submitDeletion)}`,
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
    const [method = '', route = ''] = operation.route.split(' ');
    const path = `/admin/v1${route.replaceAll(/:(\w+)/g, '{$1}')}`;
    paths[path] = { ...paths[path], [method.toLowerCase()]: describe(operation) };
  }
  return paths;
}

function describe({ route, id, summary, may, given, anyBody, answer }: Operation): object {
  const isOfConsole = may === 'self' || may === 'open';
  const inPath = [...route.matchAll(/:(\w+)/g)].map(([, field]) => String(field));
  const fields = Object.entries(given);
  const { properties, required = [] } = Type.Object(given) as ObjectSchema;
  const isInQuery = route.startsWith('GET ');
  const hasBody = anyBody || (!isInQuery && fields.length > 0);
  const codes: OutcomeCode[] = [
    ...(hasBody ? bodyCodes : []),
    ...(isInQuery && fields.length > 0 ? (['invalid_parameter'] as const) : []),
    'not_possible',
    'forbidden',
    'unauthorized',
    ...(may === 'open' ? (['rate_limited'] as const) : []),
    'overloaded',
    'unknown',
  ];
  return {
    operationId: id,
    tags: [isOfConsole ? tagOf[may] : 'Administration'],
    summary,
    description: isOfConsole ? 'For pages of the console.' : rolesText(may),
    security:
      may === 'open' ? [{}] : may === 'self' ? [{ session: [] }] : [{ adminToken: [] }, { session: [] }],
    parameters: [
      ...inPath.map((field) => ({ name: field, in: 'path', required: true, schema: text })),
      ...(isInQuery ? fields : []).map(([field, schema]) => {
        const { description, ...shown } = schema as { readonly description?: string };
        const isRequired = required.includes(field) && { required: true };
        return { name: field, in: 'query', ...isRequired, schema: shown, description };
      }),
    ],
    ...(hasBody && {
      requestBody: {
        required: required.length > 0,
        content: json({ type: 'object', properties, required }),
      },
    }),
    responses: { 200: { description: 'Done.', content: json(answer) }, ...refusals(codes) },
  };
}

function rolesText(allowed: Allowed): string {
  return `Roles: ${roles.filter((role) => mayDo(role, allowed)).join(', ')}.`;
}
