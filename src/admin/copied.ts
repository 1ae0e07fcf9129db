// Writes the second copy of a change of the registry at once, so that a loss of Redis does not undo the change.

import { administration } from '../contract/limits.js';
import type { AdminContext } from '../operations/context.js';
import { isCopiedInTime, NotCopied } from '../registry/mirror.js';

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
 * The same for a change that revokes or protects something, which nobody may believe to be safe while it can be undone: rejects with
 * NotCopied, although the change holds. Not if the result has a secret that is shown only once.
 */
export async function copiedOrFails<Result extends object>(
  context: AdminContext,
  change: Promise<Result>,
): Promise<Result> {
  const result = await copied(context, change);
  if ('copied' in result && !('import_token' in result)) throw new NotCopied(true);
  return result;
}
