// Checks that an export has exactly the records that a deletion at the moment of its request would take.

import type { Broken } from './broken.js';
import type { AskedExport } from './exported-users.js';

/**
 * `lost`: markers that may be missing, since a store lost them. `emptiedMs`: when Redis was emptied, which also removes the requests for
 * exports. `tokensEnded`: whether requests may have expired because Redis's clock was moved.
 */
export function findExportFaults(
  exports: readonly AskedExport[],
  lost: ReadonlySet<string>,
  emptiedMs: readonly (readonly [fromMs: number, toMs: number])[],
  tokensEnded: boolean,
): Broken[] {
  return exports.flatMap(({ invokedMs, before, records, status }) => {
    const [what = ''] = before;
    if (records === undefined) {
      const mayBeGone = tokensEnded || emptiedMs.some(([, toMs]) => invokedMs < toMs);
      return mayBeGone ? [] : [{ kind: 'not exported', what, detail: `the last answer was ${status}` }];
    }
    const broken: Broken[] = [];
    // If any record is lost, it may be the one that merged the user, so others may be missing too.
    const isPart = before.some((marker) => lost.has(marker));
    const missing = before.filter((marker) => !records.includes(marker));
    if (missing.length > 0 && !isPart)
      broken.push({ kind: 'missing in an export', what, detail: missing.join() });
    const more = records.filter((marker, at) => !before.includes(marker) || records.indexOf(marker) < at);
    if (more.length > 0) broken.push({ kind: 'too much in an export', what, detail: more.join() });
    return broken;
  });
}
