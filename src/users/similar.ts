// Users whose identities look like another one: the same in lower case and without blanks around them.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { namedUsers } from '../clickhouse/named-users.js';
import { hasPlainForm, plainForm } from '../clickhouse/plain-form.js';
import { storedTable } from '../clickhouse/tables.js';
import { userLookUps } from '../contract/limits.js';
import { tables } from '../contract/records.js';
import { withNames } from './merged-user.js';

/** Other identities in an environment that look like this one, in order. */
export async function findSimilar(
  client: ClickHouseClient,
  appId: string,
  identity: string,
): Promise<readonly string[]> {
  const { similarMax, similarSecondsMax } = userLookUps;
  const isSimilar = hasPlainForm(`SELECT ${plainForm('identity')} FROM ${namedUsers}`);
  const found = tables.map(
    (table) =>
      `SELECT DISTINCT identity FROM ${storedTable(table)} WHERE app_id = {appId:String} AND ${isSimilar}`,
  );
  // When the time is over, what was found by then is shown: parts without an index are read as a whole.
  const rows = await withNames(client, [identity], [], (ask) =>
    ask<{ identity: string }>(
      `SELECT DISTINCT identity FROM (${found.join(' UNION ALL ')})
        LIMIT ${similarMax + 1} SETTINGS max_execution_time = ${similarSecondsMax}, timeout_overflow_mode = 'break'`,
      { appId },
    ),
  );
  const others = rows.map((row) => row.identity).filter((other) => other !== identity);
  return others.sort().slice(0, similarMax);
}
