// The parts that ClickHouse has set aside because it cannot read or trust them: their rows are no longer in any table, and only
// ClickHouse's log says so. They are counted for readiness, metrics and the console.

import { clickhousePartsSetAside } from '../metrics.js';
import { repeat } from '../repeat.js';
import { readRow } from './answers.js';
import { type ClickHouseClient, codeOfFault, endingAfter, faultCodes } from './client.js';
import { serversOf } from './servers.js';

/**
 * Reasons that mean no loss: a person detached the part (no reason), its rows are in another part, or it is being moved or removed.
 * Reasons that later versions of ClickHouse add are counted.
 */
const harmless = ['', 'ignored', 'clone', 'attaching', 'deleting', 'tmp-fetch'];

const answerMsMax = 2_000;

/**
 * How many parts a server has set aside for another reason; undefined if it does not answer, NaN if the service lacks the right to read
 * that.
 */
export async function countSetAside(client: ClickHouseClient): Promise<number | undefined> {
  try {
    const { parts } = await readRow<{ parts: string | number }>(client, {
      query: `SELECT count() AS parts FROM system.detached_parts
        WHERE database = currentDatabase() AND ifNull(reason, '') NOT IN ({harmless:Array(String)})`,
      query_params: { harmless },
      ...endingAfter(answerMsMax),
    });
    return Number(parts);
  } catch (error) {
    // Whether a server answers is reported elsewhere.
    return codeOfFault(error) === faultCodes.accessDenied ? Number.NaN : undefined;
  }
}

/** Lines for health checks. `counts`: by server. */
export function describeSetAside(counts: readonly (number | undefined)[]): string[] {
  return counts.flatMap((parts = 0, server) =>
    parts === 0
      ? []
      : Number.isNaN(parts)
        ? [
            `it is not known whether ClickHouse server ${server} has set aside parts: grant SELECT on system.detached_parts`,
          ]
        : [
            `ClickHouse server ${server} has set aside ${parts === 1 ? '1 part' : `${parts} parts`} of its tables, and their rows are missing`,
          ],
  );
}

/** Each count lists the folders of all tables. */
const everyMs = 10_000;

export function watchSetAside(primary: ClickHouseClient) {
  let counts: readonly (number | undefined)[] = [];
  const count = async () => {
    counts = await Promise.all(serversOf(primary).all.map(countSetAside));
    for (const [server, parts = Number.NaN] of counts.entries())
      clickhousePartsSetAside.set({ server: String(server) }, parts);
  };
  const { stop } = repeat({ work: count, everyMs });
  /** `counts`: by server, as last counted. */
  return { counts: () => counts, close: () => void stop() };
}
