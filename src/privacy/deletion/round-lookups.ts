// Expressions that look up a row's environment and keys in a round: the account and the shard of the environment, the requests of the
// keys, and the highest of their fences in the row's shard. Tables in ClickHouse's memory are looked up directly. On replicas the tables
// are on disk (clickhouse/scratch.ts); there each replica reads a table into two lists of constants, from which `transform` builds a hash
// table. 100,000 keys and a million rows took 0.2 s.

import type { RoundTables } from './round-tables.js';

/** SQL for the account of a row. */
export function accountOf(tables: RoundTables): string {
  return ofEnvironment(tables, 'account_id', "''");
}

export function shardOfRow(tables: RoundTables): string {
  return ofEnvironment(tables, 'shard', 'toUInt16(0)');
}

/** SQL for the requests of a row's keys, each once. */
export function requestsOfKeys(tables: RoundTables, keys: readonly string[]): string {
  if (tables.areOnDisk) return `arrayDistinct(arrayMap(r -> toUInt32(r), ${writtenRequests(tables, keys)}))`;
  return `arrayDistinct(arrayConcat(${keys.map((key) => joined(tables.keys, 'requests', key)).join(', ')}))`;
}

/** SQL for the highest fence of a row's keys in its shard. A missing key has the fence 0, which every segment is above. */
export function fenceOfKeys(tables: RoundTables, keys: readonly string[]): string {
  const shard = shardOfRow(tables);
  if (!tables.areOnDisk) {
    const fences = keys.map((key) => `${joined(tables.keys, 'fences', key)}[${shard} + 1]`);
    return `greatest(${fences.join(', ')})`;
  }
  const fenceKey = (number: string) => `toUInt64(request) * ${shardsMax} + ${number}`;
  const source = `${tables.requests} ARRAY JOIN arrayEnumerate(fences) AS number`;
  const fence = listed(
    `toUInt64(r) * ${shardsMax} + shard`,
    fenceKey('number - 1'),
    'fences[number]',
    source,
    'toUInt64(0)',
  );
  return `arrayMax(arrayMap((r, shard) -> ${fence}, ${writtenRequests(tables, keys)}, arrayWithConstant(length(${writtenRequests(tables, keys)}), ${shard})))`;
}

const shardsMax = 65_536;

/** SQL for the requests of all keys, in decimal digits. */
function writtenRequests(tables: RoundTables, keys: readonly string[]): string {
  const source = tables.keys;
  const texts = keys.map((key) => listed(key, 'key', "arrayStringConcat(requests, ' ')", source, "''"));
  return `splitByWhitespace(concat(${texts.join(", ' ', ")}))`;
}

function ofEnvironment(tables: RoundTables, column: string, missing: string): string {
  return tables.areOnDisk
    ? listed('app_id', 'app_id', column, tables.environments, missing)
    : joined(tables.environments, column, 'app_id');
}

function joined(table: string, column: string, key: string): string {
  return `joinGet('${table}', '${column}', ${key})`;
}

/** SQL for the value that a table has for a key, from two lists of constants in the same order: the keys and the values. */
function listed(
  key: string,
  keyColumn: string,
  valueColumn: string,
  source: string,
  missing: string,
): string {
  const list = (column: string) =>
    `(SELECT groupArray(listed) FROM (SELECT ${column} AS listed FROM ${source} ORDER BY ${keyColumn}))`;
  return `transform(${key}, ${list(keyColumn)}, ${list(valueColumn)}, ${missing})`;
}
