// The command that reads the audit log.

import { AdministrationError, StateNotLoaded } from '../../contract/errors.js';
import { administration } from '../../contract/limits.js';
import { integrators, privacyOfficers } from '../../contract/roles.js';
import { optional, text } from '../../contract/typebox.js';
import { readDayOrTime } from '../../parsing/day-or-time.js';
import { readAuditLog } from '../../registry/audit/read.js';
import { copyChanges, kindsOfCopies } from '../../registry/outbox.js';
import { appIdsOf, readRegistry } from '../../registry/registry.js';
import { actionsOf, type Command, onCommandLine, scope, shows, wholeNumber } from '../command.js';
import { caseCommands } from './cases.js';
import { deletionCommands } from './deletions.js';
import { userCommands } from './users.js';

/** The maximum number of lines of a list on the command line. */
const limit = optional(wholeNumber(1, administration.countMax, onCommandLine));

/** The actions on users, of commands and of the deletion API. Privacy officers answer for them, whoever performed them. */
const actionsOnUsers: readonly string[] = [
  ...Object.entries({ ...caseCommands, ...userCommands } as Readonly<Record<string, Command>>)
    .filter(([, { may }]) => may === privacyOfficers)
    .flatMap(([name, command]) => Object.keys(actionsOf(name, command))),
  ...Object.entries(deletionCommands).flatMap(([name, command]) => Object.keys(actionsOf(name, command))),
  ...['preview_deletion', 'propose_deletion', 'submit_deletion', 'read_export'],
];

const narrowBy = (description: string) => optional(text(description));

export const auditCommands = {
  listAudit: shows({
    summary:
      'The last 100 actions: who, what, when, from where; privacy officers see those on users, and their own',
    may: integrators,
    http: 'GET /audit',
    cli: 'audit list [--limit NUMBER]   who did what, newest first',
    given: {
      ...scope,
      who: narrowBy('Only those of this name, such as an e-mail address.'),
      action: narrowBy('Only this action, or these, separated by commas.'),
      deletion_request_id: narrowBy('Only about this deletion or export.'),
      case_id: narrowBy('Only what was done in this case, and with its deletions and exports.'),
      since: narrowBy('Only from this time on.'),
      until: narrowBy('Only up to this time.'),
      before: narrowBy('With `before_id`: only actions before the one with this `at`.'),
      before_id: narrowBy('The `id` of that action.'),
      limit,
    },
    narrows: 'deletion_request_id',
    takesTurns: true,
    run: async (context, { account_id: accountId, before: at, before_id: id, limit: count, ...asked }) => {
      const { redis, clickhouse, principal, caller } = context;
      const before = at === undefined && id === undefined ? undefined : beforeOf(at, id);
      const countMax = count ?? administration.listedMax;
      if (asked.case_id !== undefined && accountId === undefined)
        throw new AdministrationError('account_id must name the account of the case');
      const filter = {
        account:
          accountId === undefined
            ? undefined
            : { accountId, appIds: appIdsOf(await readRegistry(redis), accountId) },
        seen: principal.role === 'privacy' ? { actions: actionsOnUsers, by: caller } : undefined,
        who: asked.who,
        wanted: asked.action?.split(','),
        requestId: asked.deletion_request_id,
        caseId: asked.case_id,
        sinceMs: msOf('since', asked.since),
        untilMs: msOf('until', asked.until),
      };
      // So that an action is listed as soon as it has been done. An emptied Redis has none that waits.
      await copyChanges(redis, clickhouse, { kind: kindsOfCopies.auditLine }).catch((error: unknown) => {
        if (!(error instanceof StateNotLoaded)) throw error;
      });
      return readAuditLog({ clickhouse, countMax, filter, before });
    },
  }),
};

function msOf(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const ms = readDayOrTime(text);
  if (ms === undefined)
    throw new AdministrationError(`${name} must be a day such as 2026-03-01, or a time with offset`);
  return ms;
}

/** The position before which the audit log is read: the time and id of the last action that the caller has. */
function beforeOf(at = '', id: string | undefined) {
  if (id === undefined) throw new AdministrationError('before_id must be a string');
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(at) || Number.isNaN(Date.parse(at)))
    throw new AdministrationError('before must be the time of an action of the audit log');
  return { at, id };
}
