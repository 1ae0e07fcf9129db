// Writes the second copy of a change to the registry at once, so that a loss of Redis does not undo the change.

import { administration } from '../contract/limits.js';
import type { AdminContext } from '../operations/context.js';
import { isCopiedInTime, NotCopied } from '../registry/second-copy.js';

/** If ClickHouse does not take the copy in time, the result says so, and a worker makes the copy when ClickHouse is back. */
export async function copied<Result extends object>(
  { redis, clickhouse, log, copyMsMax = administration.copyMsMax }: AdminContext,
  change: Promise<Result>,
): Promise<Result | (Result & { readonly copied: false })> {
  const result = await change;
  if (await isCopiedInTime(redis, clickhouse, copyMsMax)) return result;
  log.warn('clickhouse is away: a worker will copy the change when it is back');
  return { ...result, copied: false };
}

/**
 * Like `copied`, for changes that revoke or protect something: nobody may think that such a change is safe while it can still be undone. So
 * this rejects with NotCopied, although the change stays. It does not reject if the result has a secret that is shown only once.
 */
export async function copiedOrFails<Result extends object>(
  context: AdminContext,
  change: Promise<Result>,
): Promise<Result> {
  const result = await copied(context, change);
  if ('copied' in result && !('import_token' in result)) throw new NotCopied(true);
  return result;
}
