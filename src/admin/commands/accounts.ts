// Commands: accounts, their callbacks and environments, people, and the audit log.

import {
  AdministrationError,
  addEnvironment,
  createAccount,
  type EnvironmentSettings,
  listAccounts,
  parseImportUntil,
  setEnvironment,
  showEnvironment,
} from '../../accounts/accounts.js';
import { removeCallback, setCallback, showCallback } from '../../accounts/callbacks.js';
import { findDemoAccount } from '../../accounts/deployment.js';
import { parseOrigins } from '../../accounts/origins.js';
import { readRegistry } from '../../accounts/registry.js';
import { mirrorAudit, readAuditLog } from '../../audit/mirror.js';
import { administrationAnswers as answers } from '../../contract/administration-answers.js';
import { administration, type LimitName, lengths, rateLimits, retention } from '../../contract/limits.js';
import { administrators, everyone, integrators, operatorsOnly, roles } from '../../contract/roles.js';
import { type Static, type TObject, Type } from '../../contract/typebox.js';
import { callOptionsOf, isForbidden, isTaken } from '../../deletion/callback-call.js';
import { callForTest } from '../../deletion/callbacks.js';
import { invitePerson, listPeople, removePerson } from '../../people/people.js';
import {
  command,
  ofAccount,
  ofEnvironment,
  onCommandLine,
  oneOf,
  scope,
  text,
  texts,
  wholeNumber,
} from '../command.js';
import { copied, copiedOrFails } from '../copied.js';

/** How many lines a list on the command line has at most. */
const limit = Type.Optional(wholeNumber(1, administration.countMax, onCommandLine));

function limitOf(name: LimitName) {
  const { least = 1 } = rateLimits[name];
  const number = wholeNumber(least, administration.rateLimitMax);
  return Type.Optional(Type.Union([Type.Literal('none'), Type.Literal('default'), number]));
}

const limits = Object.fromEntries(
  (Object.keys(rateLimits) as LimitName[]).map((name) => [name, limitOf(name)]),
) as Record<LimitName, ReturnType<typeof limitOf>>;

const settings = {
  main: Type.Optional(Type.Literal(true, { description: 'Makes it the Main Production environment.' })),
  validation: Type.Optional(oneOf(['strict', 'lenient'])),
  limits: Type.Optional(
    Type.Object(limits, {
      title: 'limit',
      additionalProperties: false,
      description: 'By name a number, none, or default.',
    }),
  ),
  allow_identities: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: lengths.identityMax }), {
      description: `In addition to the words that are allowed already: at most ${administration.allowedIdentitiesMax} in all.`,
    }),
  ),
  disallow_identities: Type.Optional(Type.Array(text, { description: 'No longer allowed.' })),
  write_key: Type.Optional(
    oneOf(['required', 'optional'], { description: 'required needs a write key that is there already.' }),
  ),
  import_until: Type.Optional(
    Type.String({ description: 'A date, a time with offset, or none. The answer has the token, once.' }),
  ),
  retain_days: Type.Optional(
    Type.Union([Type.Literal('none'), wholeNumber(1, retention.daysMax)], {
      description: 'Events that were accepted longer ago go within a day, and users without events since.',
    }),
  ),
  origins: Type.Optional(
    Type.Union([Type.Literal('any'), texts], { description: 'any, or a list of origins.' }),
  ),
};

function settingsOf(given: Static<TObject<typeof settings>>): EnvironmentSettings {
  const { main, validation, write_key: writeKey, import_until: until, retain_days: retainDays } = given;
  return {
    limits: given.limits ?? {},
    allowIdentities: given.allow_identities ?? [],
    disallowIdentities: given.disallow_identities ?? [],
    ...(main && { main }),
    ...(validation && { validation }),
    ...(writeKey && { writeKey }),
    ...(retainDays && { retainDays }),
    ...(until !== undefined && { importUntilMs: parseImportUntil(until) }),
    ...(given.origins && { origins: parseOrigins([given.origins].flat()) }),
  };
}

export const accountCommands = {
  listAccounts: command({
    summary: 'Accounts with their environments; `demo` is true for the account of the page /demo',
    may: everyone,
    http: 'GET /accounts',
    cli: { line: 'accounts list' },
    given: scope,
    answer: answers.listAccounts,
    audit: 'none',
    run: async ({ redis, config }, { account_id }) => {
      const accounts = await listAccounts(redis, account_id);
      if (!config.demo) return accounts;
      const demo = await findDemoAccount(redis);
      return accounts.map((each) => (each.account_id === demo?.account_id ? { ...each, demo: true } : each));
    },
  }),
  createAccount: command({
    summary: 'Create an account',
    may: operatorsOnly,
    http: 'POST /accounts',
    cli: { line: 'accounts create NAME --environment NAME…', help: 'the first one is Main Production' },
    given: {
      name: text,
      environments: Type.Array(text, {
        maxItems: administration.environmentsPerAccountMax,
        description: 'Names; the first is Main Production.',
      }),
    },
    answer: answers.createAccount,
    audit: {
      words: 'created an account',
      details: ({ name, environments }) => ({ name, environments }),
    },
    run: (context, { name, environments }) =>
      copied(context, createAccount(context.redis, name, environments)),
  }),

  showCallback: command({
    summary: 'Where completed deletions are told, without the secret',
    may: everyone,
    http: 'GET /accounts/:account_id/callback',
    cli: {
      line: 'accounts callback ACCOUNT_ID',
      help: 'who is called when a deletion is complete',
    },
    given: ofAccount,
    answer: answers.showCallback,
    audit: 'none',
    run: ({ redis }, { account_id }) => showCallback(redis, account_id),
  }),
  setCallback: command({
    summary: 'Set it; the answer has the secret, once',
    may: administrators,
    http: 'PUT /accounts/:account_id/callback',
    cli: { line: 'accounts callback ACCOUNT_ID --url URL', help: 'the secret is shown once' },
    given: { ...ofAccount, url: text },
    answer: answers.setCallback,
    audit: { words: 'set the callback' },
    run: (context, { account_id, url }) => {
      const forbids = (wanted: string) => isForbidden(wanted, callOptionsOf(context.config.callbackAllow));
      return copied(context, setCallback(context.redis, account_id, url, forbids));
    },
  }),
  removeCallback: command({
    summary: 'Remove it',
    may: administrators,
    http: 'DELETE /accounts/:account_id/callback',
    cli: { line: 'accounts callback ACCOUNT_ID --none' },
    given: ofAccount,
    answer: answers.removeCallback,
    audit: { words: 'removed the callback' },
    run: (context, { account_id }) => copiedOrFails(context, removeCallback(context.redis, account_id)),
  }),
  testCallback: command({
    summary: 'Call it now',
    may: administrators,
    http: 'POST /accounts/:account_id/callback/test',
    cli: { line: 'accounts callback ACCOUNT_ID --test' },
    given: ofAccount,
    answer: answers.testCallback,
    audit: { words: 'tested the callback' },
    run: async ({ redis, config }, { account_id }) => {
      const result = await callForTest(redis, account_id, callOptionsOf(config.callbackAllow));
      if (result === undefined) throw new AdministrationError('the account has no callback');
      if (result === 'busy')
        throw new AdministrationError('another test of this callback still runs: try again in some seconds');
      return { account_id, delivered: isTaken(result), ...result };
    },
  }),

  addEnvironment: command({
    summary: 'Add an environment',
    may: administrators,
    http: 'POST /accounts/:account_id/environments',
    cli: { line: 'environments add ACCOUNT_ID NAME' },
    given: { ...ofAccount, name: text },
    answer: answers.addEnvironment,
    audit: { words: 'added an environment', details: ({ name }) => ({ name }) },
    run: (context, { account_id, name }) => copied(context, addEnvironment(context.redis, account_id, name)),
  }),
  setEnvironment: command({
    summary: 'Change settings',
    may: administrators,
    http: 'PATCH /environments/:app_id',
    cli: {
      line: 'environments set APP_ID [--main] [--validation strict|lenient] [--limit NAME=none|default|NUMBER]… [--allow-identity VALUE]… [--disallow-identity VALUE]… [--write-key required|optional] [--origin any|none|apps|ORIGIN]… [--import-until DATE|none] [--retain-days NUMBER|none]',
      help: 'import-until: the token for imports is shown once; retain-days: events that are older go within a day, and users without events since',
    },
    given: { ...ofEnvironment, ...settings },
    called: 'setting',
    answer: answers.setEnvironment,
    audit: {
      words: 'changed the settings of an environment',
      // Of the identities that it allows, only how many.
      details: (given) => {
        const { allowIdentities = [], disallowIdentities = [], ...others } = settingsOf(given);
        return {
          ...others,
          ...(allowIdentities.length > 0 && { allowed_identities: allowIdentities.length }),
          ...(disallowIdentities.length > 0 && { disallowed_identities: disallowIdentities.length }),
        };
      },
    },
    run: (context, { app_id, ...given }) =>
      copiedOrFails(context, setEnvironment(context.redis, app_id, settingsOf(given))),
  }),
  showEnvironment: command({
    summary: 'An environment with its settings',
    may: everyone,
    http: 'GET /environments/:app_id',
    cli: { line: 'environments show APP_ID', help: 'its settings' },
    given: ofEnvironment,
    answer: answers.showEnvironment,
    audit: 'none',
    run: ({ redis }, { app_id }) => showEnvironment(redis, app_id),
  }),

  invitePerson: command({
    summary: 'Invite a person; the answer has the link, once',
    may: administrators,
    http: 'POST /people',
    cli: {
      line: 'people invite EMAIL --role operator|administrator|privacy|viewer [--account ACCOUNT_ID]',
      help: 'a link to the console, good once, for 7 days; again: they choose a new password',
    },
    given: {
      email: text,
      role: oneOf(roles),
      account_id: Type.Optional(
        Type.String({
          description: 'Of every role but operator; people of an account may leave it out.',
        }),
      ),
    },
    answer: answers.invitePerson,
    audit: { words: 'invited a person', details: ({ email, role }) => ({ email, role }) },
    run: async (context, { account_id: accountId, ...invited }) => {
      const { redis, config, principal } = context;
      const by = principal.role === 'operator' ? 'operator' : 'administrator';
      const made = invitePerson(redis, { ...invited, accountId }, by);
      const { secret, ...person } = await copied(context, made);
      // Behind the hash, so that it is in no log on the way.
      return { ...person, url: `${config.adminBaseUrl}/invitation#${secret}` };
    },
  }),
  listPeople: command({
    summary: 'People',
    may: administrators,
    http: 'GET /people',
    cli: { line: 'people list [--account ACCOUNT_ID]' },
    given: scope,
    answer: answers.listPeople,
    audit: 'none',
    run: ({ redis }, { account_id }) => listPeople(redis, account_id),
  }),
  removePerson: command({
    summary: 'Remove a person',
    may: administrators,
    http: 'DELETE /people/:person_id',
    cli: { line: 'people remove PERSON_ID' },
    given: { person_id: text },
    answer: answers.removePerson,
    audit: { words: 'removed a person', details: ({ person_id }) => ({ personId: person_id }) },
    run: (context, { person_id }) => copiedOrFails(context, removePerson(context.redis, person_id)),
  }),

  listAudit: command({
    summary: 'The last 100 actions: who, what, when, from where; to privacy officers their own',
    may: integrators,
    http: 'GET /audit',
    cli: { line: 'audit list [--limit NUMBER]', help: 'who did what, newest first' },
    given: {
      ...scope,
      before: Type.Optional(
        Type.String({
          description: 'With `before_id`: only older ones than the action with this `at`.',
        }),
      ),
      before_id: Type.Optional(Type.String({ description: 'Its `id`.' })),
      limit,
    },
    answer: answers.listAudit,
    audit: 'none',
    takesTurns: true,
    run: async (context, { account_id: accountId, before: at, before_id: id, limit: count }) => {
      const { redis, clickhouse, principal, caller } = context;
      const before = at === undefined && id === undefined ? undefined : placeOf(at, id);
      const countMax = count ?? administration.listedMax;
      // So that an action is in the list as soon as it is done.
      await mirrorAudit(redis, clickhouse);
      if (accountId === undefined) return readAuditLog(clickhouse, countMax, undefined, before);
      const { environments } = await readRegistry(redis);
      const own = [...environments.values()].filter(({ account_id }) => account_id === accountId);
      const appIds = own.map(({ app_id }) => app_id);
      // Privacy officers see what they did themselves.
      const person = principal.role === 'privacy' ? { person: caller } : {};
      return readAuditLog(clickhouse, countMax, { accountId, appIds, ...person }, before);
    },
  }),
};

/** The action before which the audit log is read: the time and the id of the last one that the caller has. */
function placeOf(at = '', id: string | undefined) {
  if (id === undefined) throw new AdministrationError('before_id must be a string');
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(at) || Number.isNaN(Date.parse(at)))
    throw new AdministrationError('before must be the time of an action of the audit log');
  return { at, id };
}
