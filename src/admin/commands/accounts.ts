// Commands: accounts, their settings, callbacks and environments, and people.

import {
  addEnvironment,
  createAccount,
  type EnvironmentSettings,
  listAccounts,
  parseImportUntil,
  setAccount,
  setEnvironment,
  showEnvironment,
} from '../../accounts/accounts.js';
import { removeCallback, setCallback, showCallback } from '../../accounts/callbacks.js';
import { parseOrigins } from '../../accounts/origins.js';
import { invitePerson, listPeople, removePerson } from '../../accounts/people/people.js';
import { createProgramKey, listProgramKeys, revokeProgramKey } from '../../accounts/program-keys.js';
import { AdministrationError } from '../../contract/errors.js';
import {
  administration,
  cases,
  type LimitName,
  lengths,
  proposals,
  rateLimits,
  retention,
} from '../../contract/limits.js';
import { administrators, everyone, operatorsOnly, roles } from '../../contract/roles.js';
import {
  anyOf,
  listOf,
  literal,
  oneOf,
  optional,
  type Static,
  type TObject,
  Type,
  text,
} from '../../contract/typebox.js';
import { findDemoAccount } from '../../operations/deployment.js';
import { callOptionsOf, isAccepted, isForbidden } from '../../privacy/deletion/callback-call.js';
import { callForTest } from '../../privacy/deletion/callbacks.js';
import { does, scope, shows, wholeNumber } from '../command.js';
import { copied, copiedOrFails } from '../copied.js';

function limitOf(name: LimitName) {
  const { least = 1 } = rateLimits[name];
  const number = wholeNumber(least, administration.rateLimitMax);
  return optional(anyOf([literal('none'), literal('default'), number]));
}

const limits = Object.fromEntries(
  (Object.keys(rateLimits) as LimitName[]).map((name) => [name, limitOf(name)]),
) as Record<LimitName, ReturnType<typeof limitOf>>;

const settings = {
  main: optional(literal(true, 'Makes it the Main Production environment.')),
  validation: optional(oneOf(['strict', 'lenient'])),
  limits: optional(
    Type.Object(limits, {
      title: 'limit',
      additionalProperties: false,
      description: 'By name: a number, none, or default.',
    }),
  ),
  allow_identities: optional(
    listOf(
      text({ minLength: 1, maxLength: lengths.identityMax }),
      `In addition to the words that are already allowed: at most ${administration.allowedIdentitiesMax} in all.`,
    ),
  ),
  disallow_identities: optional(listOf(text(), 'No longer allowed.')),
  write_key: optional(
    oneOf(['required', 'optional'], 'For required, the environment must already have a write key.'),
  ),
  import_until: optional(text('A date, a time with offset, or none. The answer has the token, once.')),
  retain_days: optional(
    anyOf(
      [literal('none'), wholeNumber(1, retention.daysMax)],
      'Events that were accepted longer ago are deleted within a day, and users without events since.',
    ),
  ),
  origins: optional(anyOf([literal('any'), listOf(text())], 'any, or a list of origins.')),
};

const accountSettings = {
  due_days: optional(
    wholeNumber(1, cases.dueDaysMax, {
      description: 'The number of days from the receipt of a case until it is due.',
    }),
  ),
  erase: optional(
    oneOf(
      ['now', 'together'],
      'For large tables. now: the rows of one deletion an hour are erased at once. together: rows are erased together with those of others.',
    ),
  ),
  confirm_from: optional(
    anyOf(
      [literal('none'), wholeNumber(1, proposals.fromUsersMax)],
      'The number of users from which a deletion by a person is carried out only after another person has submitted the same list. Does not apply to programs.',
    ),
  ),
  second_factor: optional(
    oneOf(
      ['required', 'optional'],
      'required: people of the account who sign in with a password see nothing until they have one.',
    ),
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
  listAccounts: shows({
    summary: 'Accounts with their environments; `demo` is true for the account of the page /demo',
    may: everyone,
    http: 'GET /accounts',
    cli: 'accounts list',
    given: scope,
    run: async ({ redis, config }, { account_id }) => {
      const accounts = await listAccounts(redis, account_id);
      if (!config.demo) return accounts;
      const demo = await findDemoAccount(redis);
      return accounts.map((each) => (each.account_id === demo?.account_id ? { ...each, demo: true } : each));
    },
  }),
  createAccount: does('created an account', {
    summary: 'Create an account',
    may: operatorsOnly,
    http: 'POST /accounts',
    cli: 'accounts create NAME --environment NAME…   an option for each; the first is Main Production',
    given: {
      name: text(),
      environments: listOf(text(), 'Names; the first is Main Production.', {
        maxItems: administration.environmentsPerAccountMax,
      }),
    },
    details: ({ name, environments }) => ({ name, environments }),
    run: (context, { name, environments }) =>
      copied(context, createAccount(context.redis, name, environments)),
  }),
  setAccount: does('changed the settings of an account', {
    summary: 'Change the settings of an account',
    may: administrators,
    http: 'PATCH /accounts/:account_id',
    cli: 'accounts set ACCOUNT_ID [--due-days NUMBER] [--erase now|together] [--confirm-from NUMBER|none] [--second-factor required|optional]   due-days: how many days after it was received a case is due; erase: where tables are large, now erases deleted rows at once, for one deletion an hour; confirm-from: from how many users on a second person confirms a deletion',
    given: accountSettings,
    called: 'setting',
    details: ({ account_id: _, ...settings }) => settings,
    run: (context, { account_id, ...settings }) =>
      copiedOrFails(context, setAccount(context.redis, account_id, settings)),
  }),

  showCallback: shows({
    summary: 'The URL that is called when a deletion is complete, without the secret',
    may: everyone,
    http: 'GET /accounts/:account_id/callback',
    cli: 'accounts callback ACCOUNT_ID   who is called when a deletion is complete',
    run: ({ redis }, { account_id }) => showCallback(redis, account_id),
  }),
  setCallback: does('set the callback', {
    summary: 'Set the callback; only this answer has the secret',
    may: administrators,
    http: 'PUT /accounts/:account_id/callback',
    cli: 'accounts callback ACCOUNT_ID --url URL   the secret is shown once',
    given: { url: text() },
    run: (context, { account_id, url }) => {
      const forbids = (wanted: string) => isForbidden(wanted, callOptionsOf(context.config.callbackAllow));
      return copied(context, setCallback(context.redis, account_id, url, forbids));
    },
  }),
  removeCallback: does('removed the callback', {
    summary: 'Remove the callback',
    may: administrators,
    http: 'DELETE /accounts/:account_id/callback',
    cli: 'accounts callback ACCOUNT_ID --none',
    run: (context, { account_id }) => copiedOrFails(context, removeCallback(context.redis, account_id)),
  }),
  testCallback: does('tested the callback', {
    summary: 'Make a test call now',
    may: administrators,
    http: 'POST /accounts/:account_id/callback/test',
    cli: 'accounts callback ACCOUNT_ID --test',
    run: async ({ redis, config }, { account_id }) => {
      const result = await callForTest(redis, account_id, callOptionsOf(config.callbackAllow));
      if (result === undefined) throw new AdministrationError('the account has no callback');
      if (result === 'busy')
        throw new AdministrationError(
          'another test of this callback is still running: try again in a few seconds',
        );
      return { account_id, delivered: isAccepted(result), ...result };
    },
  }),

  addEnvironment: does('added an environment', {
    summary: 'Add an environment',
    may: administrators,
    http: 'POST /accounts/:account_id/environments',
    cli: 'environments add ACCOUNT_ID NAME',
    given: { name: text() },
    details: ({ name }) => ({ name }),
    run: (context, { account_id, name }) => copied(context, addEnvironment(context.redis, account_id, name)),
  }),
  setEnvironment: does('changed the settings of an environment', {
    summary: 'Change settings',
    may: administrators,
    http: 'PATCH /environments/:app_id',
    cli: 'environments set APP_ID [--main] [--validation strict|lenient] [--limit NAME=none|default|NUMBER]… [--allow-identity VALUE]… [--disallow-identity VALUE]… [--write-key required|optional] [--origin any|none|apps|ORIGIN]… [--import-until DATE|none] [--retain-days NUMBER|none]   import-until: the token for imports is shown once; retain-days: events that are older go within a day, and users without events since',
    given: settings,
    called: 'setting',
    // Only the number of identities that it allows.
    details: (given) => {
      const { allowIdentities = [], disallowIdentities = [], ...others } = settingsOf(given);
      return {
        ...others,
        ...(allowIdentities.length > 0 && { allowed_identities: allowIdentities.length }),
        ...(disallowIdentities.length > 0 && { disallowed_identities: disallowIdentities.length }),
      };
    },
    run: (context, { app_id, ...given }) =>
      copiedOrFails(context, setEnvironment(context.redis, app_id, settingsOf(given))),
  }),
  showEnvironment: shows({
    summary: 'An environment with its settings',
    may: everyone,
    http: 'GET /environments/:app_id',
    cli: 'environments show APP_ID   its settings',
    run: ({ redis }, { app_id }) => showEnvironment(redis, app_id),
  }),

  createProgramKey: does('created a key of a program', {
    summary: 'Create a key for a program that calls the administration; only this answer has it',
    may: administrators,
    http: 'POST /program-keys',
    cli: 'program-keys create NAME --role operator|administrator|privacy|viewer [--account ACCOUNT_ID]   a bearer token for /admin/v1 with the rights of the role; shown once',
    given: {
      name: text(),
      role: oneOf(roles),
      account_id: optional(
        text('For every role but operator; programs and people of an account may leave it out.'),
      ),
    },
    details: ({ name, role }) => ({ name, role }),
    run: (context, { name, role, account_id: accountId }) =>
      copied(context, createProgramKey(context.redis, { name, role, accountId })),
  }),
  listProgramKeys: shows({
    summary: 'Keys of programs, never the keys themselves',
    may: administrators,
    http: 'GET /program-keys',
    cli: 'program-keys list [--account ACCOUNT_ID]',
    given: scope,
    run: ({ redis }, { account_id }) => listProgramKeys(redis, account_id),
  }),
  revokeProgramKey: does('revoked a key of a program', {
    summary: 'Revoke a program key; it ends within a second',
    may: administrators,
    http: 'DELETE /program-keys/:id',
    cli: 'program-keys revoke ID [--account ACCOUNT_ID]',
    given: scope,
    run: (context, { id, account_id }) =>
      copiedOrFails(context, revokeProgramKey(context.redis, id, account_id)),
  }),

  invitePerson: does('invited a person', {
    summary: 'Invite a person; only this answer has the link',
    may: administrators,
    http: 'POST /people',
    cli: 'people invite EMAIL --role operator|administrator|privacy|viewer [--account ACCOUNT_ID]   a link to the console, good once, for 7 days; again: they choose a new password',
    given: {
      email: text(),
      role: oneOf(roles),
      account_id: optional(text('For every role but operator; people of an account may leave it out.')),
    },
    details: ({ email, role }) => ({ email, role }),
    run: async (context, { account_id: accountId, ...invited }) => {
      const { redis, config, principal } = context;
      const by = principal.role === 'operator' ? 'operator' : 'administrator';
      const made = invitePerson(redis, { ...invited, accountId }, by);
      const { secret, ...person } = await copied(context, made);
      // In the fragment, so that no server on the way logs it.
      return { ...person, url: `${config.adminBaseUrl}/invitation#${secret}` };
    },
  }),
  listPeople: shows({
    summary: 'People',
    may: administrators,
    http: 'GET /people',
    cli: 'people list [--account ACCOUNT_ID]',
    given: scope,
    run: ({ redis }, { account_id }) => listPeople(redis, account_id),
  }),
  removePerson: does('removed a person', {
    summary: 'Remove a person',
    may: administrators,
    http: 'DELETE /people/:person_id',
    cli: 'people remove PERSON_ID',
    details: ({ person_id }) => ({ personId: person_id }),
    run: (context, { person_id }) => copiedOrFails(context, removePerson(context.redis, person_id)),
  }),
};
