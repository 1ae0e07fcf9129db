// Users whose identities look like another one: the same in lower case and without blanks around them. To compare all events
// takes seconds in a large environment. So the usual ways to write an address are looked for everywhere, and all others
// among the users who were identified or have properties. The preview of a deletion compares everything.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { namedUsers } from '../clickhouse/named-users.js';
import { storedTable } from '../clickhouse/tables.js';
import { lengths, userLookUps } from '../contract/limits.js';
import type { TableName } from '../contract/records.js';
import { withNames } from './merged-user.js';

/** Other identities in an environment that look like this one, in order. */
export async function findSimilar(
  client: ClickHouseClient,
  appId: string,
  identity: string,
): Promise<readonly string[]> {
  const written = waysToWrite(identity).filter((way) => way !== identity);
  const { similarMax, similarSecondsMax } = userLookUps;
  const ofTable = (table: TableName, condition: string) =>
    `SELECT DISTINCT identity FROM ${storedTable(table)} WHERE app_id = {appId:String} AND ${condition}`;
  const isWritten = `identity IN (SELECT identity FROM ${namedUsers})`;
  const isAlike = `identity != '' AND ${plain('identity')} IN (SELECT ${plain('identity')} FROM ${namedUsers})`;
  const found = await withNames(client, [identity, ...written], [], async (ask) => [
    ...(await ask<{ identity: string }>(ofTable('events', isWritten), { appId })),
    // What was found until then is shown.
    ...(await ask<{ identity: string }>(
      `SELECT DISTINCT identity FROM (${ofTable('user_identities', isAlike)} UNION ALL ${ofTable('user_properties', isAlike)})
        LIMIT ${similarMax} SETTINGS max_execution_time = ${similarSecondsMax}, timeout_overflow_mode = 'break'`,
      { appId },
    )),
  ]);
  const others = new Set(found.map((row) => row.identity));
  others.delete(identity);
  return [...others].sort().slice(0, similarMax);
}

function plain(column: string): string {
  return `lowerUTF8(trim(BOTH ' \\t\\n\\v\\f\\r' FROM ${column}))`;
}

/** The ways in which people write an address: each part in lower case, in capitals, or with capitals at the beginning. */
export function waysToWrite(identity: string): string[] {
  const bare = identity.trim();
  const at = bare.lastIndexOf('@');
  const [local, domain] = at === -1 ? [bare, ''] : [bare.slice(0, at), bare.slice(at)];
  const formsOf = (text: string) => {
    const lower = text.toLowerCase();
    const first = lower.replace(/\p{L}/u, (letter) => letter.toUpperCase());
    const each = lower.replace(/(?<!\p{L})\p{L}/gu, (letter) => letter.toUpperCase());
    return [text, lower, text.toUpperCase(), first, each];
  };
  const ways = formsOf(local).flatMap((name) => formsOf(domain).map((host) => name + host));
  return [...new Set([identity, ...ways])].filter((way) => [...way].length <= lengths.identityMax);
}
