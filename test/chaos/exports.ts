// Checks that an export has all and only what a deletion at the moment of its request would take.

import type { Broken } from './broken.js';
import type { AskedExport } from './exported-users.js';

/**
 * `lost`: markers that may be missing, since a store lost them. `emptiedMs`: when Redis was emptied,
 * which also removes the requests for exports. `tokensEnded`: whether requests may be gone because Redis's clock was moved
 * past their end.
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
    // Who was merged with whom may be lost too.
    const isPart = before.some((marker) => lost.has(marker));
    const missing = before.filter((marker) => !records.includes(marker));
    if (missing.length > 0 && !isPart)
      broken.push({ kind: 'missing in an export', what, detail: missing.join() });
    const more = records.filter((marker, at) => !before.includes(marker) || records.indexOf(marker) < at);
    if (more.length > 0) broken.push({ kind: 'too much in an export', what, detail: more.join() });
    return broken;
  });
}
