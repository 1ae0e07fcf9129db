// Users whose identities look like another one: equal in lower case and without surrounding blanks.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { askInTime, namedUsers } from '../../clickhouse/named-users.js';
import { differsAndHas, plainForm } from '../../clickhouse/plain-form.js';
import { storedTable } from '../../clickhouse/tables.js';
import { userLookUps } from '../../contract/limits.js';
import { tables } from '../../contract/records.js';

/** Other identities that look like this one, in some environments of one server, in order. */
export async function findSimilar(
  client: ClickHouseClient,
  appIds: readonly string[],
  identity: string,
): Promise<readonly string[]> {
  const { similarMax, similarSecondsMax } = userLookUps;
  // Does not read the rows of the user itself, of which there may be millions: one row with its plain form is enough.
  const ofPlainForm = `identity IN (SELECT ${plainForm('identity')} AS plain FROM ${namedUsers} WHERE plain NOT IN ('', identity))`;
  const others = `${differsAndHas(`SELECT ${plainForm('identity')} FROM ${namedUsers}`)}
    AND identity NOT IN ('', {identity:String})`;
  const found = tables.flatMap((table) => [
    `(SELECT identity FROM ${storedTable(table)} WHERE app_id IN {appIds:Array(String)} AND ${ofPlainForm} LIMIT 1)`,
    `SELECT DISTINCT identity FROM ${storedTable(table)} WHERE app_id IN {appIds:Array(String)} AND ${others}`,
  ]);
  // Parts without an index are read as a whole. When the time is up, shows what was found so far.
  const rows = await askInTime<{ identity: string }>(
    client,
    { identities: [identity], userIds: [] },
    `SELECT DISTINCT identity FROM (${found.join(' UNION ALL ')}) LIMIT ${similarMax}`,
    { params: { appIds, identity }, secondsMax: similarSecondsMax },
  );
  return rows.map((row) => row.identity).sort();
}
