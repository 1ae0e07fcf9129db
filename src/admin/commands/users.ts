// Commands: users as privacy officers see them, their suppression, and exports.

import { bodies, deletions, lengths } from '../../contract/limits.js';
import { privacyOfficers } from '../../contract/roles.js';
import { exportSchema } from '../../contract/schemas.js';
import { flag, optional, Type, text } from '../../contract/typebox.js';
import { checkOpenCase } from '../cases.js';
import { does, shows } from '../command.js';
import { listExportsOf, requestExport } from '../exports.js';
import { accountOf, showRequestsOf, showUserEverywhere } from '../user-everywhere.js';
import {
  changeSuppression,
  environmentOf,
  showEventCounts,
  showSuppressed,
  showUser,
  showUserEvents,
  similarTo,
} from '../users.js';

/** A user of an environment, named by exactly one of these. Sent in a body, since proxies log URLs. */
const user = {
  identity: optional(text()),
  user_id: optional(Type.Unsafe<number | string>({ type: ['integer', 'string'] })),
  anonymous_id: optional(text()),
};
const users = {
  users: exportSchema.properties.users,
  case_id: optional(text('The open case to which it belongs.')),
};
/** What a look-up and the time line have in common. */
const manyUsers = { checkedInside: ['users'], bodyBytesMax: bodies.adminListBytesMax };

export const userCommands = {
  lookUpUser: does('looked up a user', {
    summary:
      'What is held about a user: merged names, properties, how often which events, and whether suppressed',
    may: privacyOfficers,
    http: 'POST /environments/:app_id/user',
    given: {
      ...user,
      events: optional(
        flag(
          'false: without `events`, whose counts may take seconds for a user with very many. Default: true.',
        ),
      ),
    },
    takesTurns: true,
    run: (context, { app_id, events = true, ...named }) => showUser(context, app_id, named, events),
  }),
  lookUpUserEverywhere: does('looked up a user in all environments', {
    summary:
      'Where in an account something is held about a user, how much, since when, and whether suppressed',
    may: privacyOfficers,
    http: 'POST /accounts/:account_id/user',
    given: user,
    takesTurns: true,
    run: (context, { account_id, ...named }) => showUserEverywhere(context, account_id, named),
  }),
  findSimilarUsersEverywhere: does('looked for similar users in all environments', {
    summary: 'Identities in any environment that are the same in lower case and without surrounding blanks',
    may: privacyOfficers,
    http: 'POST /accounts/:account_id/user/similar',
    given: { identity: text() },
    takesTurns: true,
    run: async (context, { account_id, identity }) => {
      const { appIds } = await accountOf(context, account_id);
      return { account_id, similar: await similarTo(context, appIds, identity) };
    },
  }),
  findRequestsOfUser: does('looked for the requests of a user', {
    summary: 'Deletions and exports that concern a user: from the last 30 days, or still kept',
    may: privacyOfficers,
    http: 'POST /accounts/:account_id/user/requests',
    given: user,
    takesTurns: true,
    run: (context, { account_id, ...named }) => showRequestsOf(context, account_id, named),
  }),
  countUserEvents: does('counted the events of a user', {
    summary: 'How often which events of a user are stored, and the first and the last time of each',
    may: privacyOfficers,
    http: 'POST /environments/:app_id/user/event-counts',
    given: user,
    takesTurns: true,
    run: (context, { app_id, ...named }) => showEventCounts(context, app_id, named),
  }),
  findSimilarUsers: does('looked for similar users', {
    summary: 'Other identities that are the same in lower case and without surrounding blanks',
    may: privacyOfficers,
    http: 'POST /environments/:app_id/user/similar',
    given: { identity: text() },
    takesTurns: true,
    run: async (context, { app_id, identity }) => {
      await environmentOf(context, app_id);
      return { app_id, similar: await similarTo(context, [app_id], identity) };
    },
  }),
  readUserEvents: does('read the events of a user', {
    summary: 'The events of a user, the latest first, in pages',
    may: privacyOfficers,
    http: 'POST /environments/:app_id/user/events',
    given: {
      ...user,
      event: optional(text('Only events of this name.', { maxLength: lengths.eventMax })),
      cursor: optional(text('The cursor of the previous page.')),
    },
    takesTurns: true,
    run: (context, { app_id, event, cursor, ...named }) =>
      showUserEvents(context, app_id, named, { event, cursor }),
  }),

  showSuppressed: shows({
    summary: 'How many users are suppressed; their names are stored only as hashes',
    may: privacyOfficers,
    http: 'GET /accounts/:account_id/user_suppression',
    run: (context, { account_id }) => showSuppressed(context, account_id),
  }),
  suppressUsers: does(
    { suppress_users: 'suppressed users', free_users: 'lifted the suppression of users' },
    {
      ...manyUsers,
      summary: 'Suppress users, or free them',
      may: privacyOfficers,
      http: { 'POST /accounts/:account_id/user_suppression': 'suppressUsersOfAccount' },
      given: {
        ...users,
        suppress: flag('true: from now on no record about them is stored. false: they are free again.'),
        reference: optional(
          text('Why, such as a ticket, for the audit log. It is kept, so it must not name a user.', {
            maxLength: deletions.referenceMax,
          }),
        ),
      },
      action: ({ suppress }) => (suppress ? 'suppress_users' : 'free_users'),
      details: ({ reference, ...named }) => ({
        ...howMany(named),
        ...(reference !== undefined && { reference }),
      }),
      run: async (context, { account_id, users, suppress, case_id }) => {
        await checkOpenCase(context, account_id, case_id);
        return changeSuppression(context, account_id, users, suppress);
      },
    },
  ),

  listExports: shows({
    summary: 'The latest exports, without names of users',
    may: privacyOfficers,
    http: 'GET /accounts/:account_id/user_exports',
    run: (context, { account_id }) => listExportsOf(context, account_id),
  }),
  submitExport: does('asked for an export', {
    ...manyUsers,
    summary: 'Ask for an export of users',
    may: privacyOfficers,
    http: { 'POST /accounts/:account_id/user_exports': 'submitExportOfAccount' },
    given: users,
    details: howMany,
    detailsOfResult: ({ user_export_id }) => ({ user_export_id }),
    run: async (context, { account_id, users, case_id }) => {
      await checkOpenCase(context, account_id, case_id);
      return requestExport(context, account_id, users);
    },
  }),
};

/** The audit log's details: the number of users, never their names. */
function howMany({ users, case_id }: { readonly users: unknown; readonly case_id?: string }) {
  return { ...(Array.isArray(users) && { users: users.length }), ...(case_id !== undefined && { case_id }) };
}
