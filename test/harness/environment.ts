// The environment of the processes that tests start. It inherits only the variables that any program needs, so that no setting of the
// caller's shell changes what is tested.

import type { TableKind } from '../../src/config.js';

const kept = ['PATH', 'HOME', 'TMPDIR', 'TZ', 'LANG', 'NODE_OPTIONS', 'NODE_V8_COVERAGE', 'LD_LIBRARY_PATH'];

/**
 * `TEST_TABLES=rehearsed npm test -- deletion` runs tests with the statements for replicas. A test that looks into the memory
 * of ClickHouse's tables, or counts statements, may fail then.
 */
export const tablesUnderTest: TableKind = process.env.TEST_TABLES === 'rehearsed' ? 'rehearsed' : 'plain';

/** `TEST_ERASE=masked npm test -- deletion` deletes as from large tables: rows are masked first and erased later. */
export const maskingEnvironment = { ERASE_AT_ONCE_BYTES_MAX: '0', ERASE_CPU_SHARE: '1' };
const erasure = process.env.TEST_ERASE === 'masked' ? maskingEnvironment : {};

/**
 * Options of Node for a process that ends soon: while it waits, it does not collect garbage to have less memory, which takes 0.1 s
 * of the CPU in its first minute.
 */
export const briefly = ['--no-memory-reducer'];

export function plainEnvironment(): NodeJS.ProcessEnv {
  const entries = kept
    .filter((name) => process.env[name] !== undefined)
    .map((name) => [name, process.env[name]]);
  return { CLICKHOUSE_TABLES: tablesUnderTest, ...erasure, ...Object.fromEntries(entries) };
}
