// What tests ask of the embedded ClickHouse beyond its HTTP interface.

import type { ClickHouseHandle } from './clickhouse.js';

/** Runs until it is killed, and takes no processor. */
export const longStatement =
  'SELECT sleepEachRow(0.05) FROM numbers(100000) SETTINGS max_block_size = 1, max_threads = 1';

export async function processesOf(url: string): Promise<number> {
  const reply = await fetch(url, { method: 'POST', body: 'SELECT count() FROM system.processes' });
  return Number(await reply.text());
}

export function enginePidOf(of: ClickHouseHandle): number {
  return Number(/"pid":(\d+)/.exec(of.output())?.[1]);
}
