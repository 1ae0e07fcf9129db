// People of the console in the Event Visualizer. A person who may watch what arrives in an environment may also watch its devices, with a
// line in the audit log.

import { refusalOf } from '../../admin/access.js';
import { commands } from '../../admin/commands.js';
import { mayDo } from '../../contract/roles.js';
import type { Redis } from '../../redis/client.js';
import { type AuditOptions, audited } from '../../registry/audit/audit.js';
import { findCaller } from './admin-caller.js';

/** A person who is signed in. */
export type Watcher = {
  /** The account whose share of the service the pages use; undefined for operators, who have all of it. */
  readonly account: string | undefined;
  readonly mayWatch: boolean;
  maySee(appId: string): boolean;
  /** Does `work`, which begins to watch a device, with a line in the audit log. */
  underAudit<Result>(appId: string, work: () => Promise<Result>): Promise<Result>;
};

/** The person whose session a cookie is; undefined once it has ended. */
export type FindWatcher = (cookie: string, address: string) => Promise<Watcher | undefined>;

export type WatcherOptions = {
  readonly redis: Redis;
  readonly audit: AuditOptions;
  readonly accountOf: (appId: string) => string | undefined;
};

export function createFindWatcher({ redis, audit, accountOf }: WatcherOptions): FindWatcher {
  return async (cookie, address) => {
    const caller = await findCaller(redis, cookie, address);
    if (caller === undefined) return undefined;
    const { actor, principal } = caller;
    return {
      account: principal.role === 'operator' ? undefined : principal.accountId,
      mayWatch: mayDo(principal.role, commands.watchLive.may),
      maySee: (appId) => {
        const accountId = accountOf(appId);
        return (
          accountId !== undefined && refusalOf(principal, commands.watchLive.may, accountId) === undefined
        );
      },
      underAudit: (appId, work) =>
        audited(
          audit,
          actor,
          { action: 'watch_device', account_id: accountOf(appId), app_id: appId, details: {} },
          work,
          {
            endingOf: (pairing) => ({ outcome: pairing === undefined ? 'refused' : 'done' }),
            outcomeOfError: () => 'unknown',
          },
        ),
    };
  };
}
