// The connection to ClickHouse, embedded or not, and the one place that classifies its faults.

import type { Agent } from 'node:http';
import type { Config, TableKind } from '../config.js';
import { waits } from '../contract/limits.js';
import {
  type ClickHouseClient,
  ClickHouseError,
  ClickHouseLogLevel,
  createClient,
} from '../packages/clickhouse.js';
import { createAgent } from './connections.js';
import { setReplication, settingsFor } from './replication.js';

export type { ClickHouseClient } from '../packages/clickhouse.js';

export type ClickHouseOptions = {
  readonly url: string;
  readonly database: string;
  readonly requestMsMax?: number;
  /** The kind of tables in the database; plain by default. */
  readonly tables?: TableKind;
  readonly cluster?: string | undefined;
};

/** The servers of a configuration, their database, and how they keep its tables. */
export function serversIn(config: Config) {
  return {
    urls: config.clickhouseUrls,
    database: config.clickhouseDatabase,
    tables: config.clickhouseTables,
    cluster: config.clickhouseCluster,
  };
}

export function connectClickHouse(options: ClickHouseOptions): ClickHouseClient {
  const { tables = 'plain', cluster, database } = options;
  const replication = { tables, cluster, database };
  const guard: Guard = {};
  const newAgent = () =>
    createAgent(options.url, (soleAgent) =>
      guard.check?.(() => connect(options, waits.clickhouseMsMax, soleAgent(), 0)),
    );
  const client = connect(options, options.requestMsMax ?? waits.clickhouseMsMax, newAgent());
  const patient = connect(options, timerMsMax, newAgent());
  for (const each of [client, patient]) setReplication(each, replication);
  patients.set(client, patient);
  guards.set(client, guard);
  const close = client.close.bind(client);
  client.close = async () => {
    await Promise.all([close(), patient.close()]);
  };
  return client;
}

const patients = new WeakMap<ClickHouseClient, ClickHouseClient>();
/** The longest delay of a timer. */
const timerMsMax = 2 ** 31 - 1;

/** The same connection without a time limit, for statements that are watched (`long-statement.ts`). It is closed with the other. */
export function patientOf(client: ClickHouseClient): ClickHouseClient {
  return patients.get(client) ?? client;
}

/**
 * Checks a new connection before anything else is sent over it: rejects if it must not be used; undefined if it needs no check. `over`
 * makes a client of this connection alone.
 */
export type CheckConnection = (over: () => ClickHouseClient) => Promise<unknown> | undefined;

type Guard = { check?: CheckConnection };
const guards = new WeakMap<ClickHouseClient, Guard>();

/**
 * Calls `admit` before each statement of a client and of its `patientOf`, and `check` for each of their connections. If one of them
 * rejects, the statement is not sent.
 */
export function guardStatements(
  client: ClickHouseClient,
  admit: () => Promise<void> | undefined,
  check: CheckConnection,
): void {
  for (const each of new Set([client, patientOf(client)])) guard(each, admit);
  Object.assign(guards.get(client) ?? {}, { check });
}

function guard(client: ClickHouseClient, admit: () => Promise<void> | undefined): void {
  const guarded =
    <Statement extends { readonly abort_signal?: AbortSignal }, Result>(
      send: (statement: Statement) => Promise<Result>,
    ) =>
    async (statement: Statement): Promise<Result> => {
      const admission = admit();
      if (admission !== undefined) await untilAborted(admission, statement.abort_signal);
      return send(statement);
    };
  client.query = guarded(client.query.bind(client)) as ClickHouseClient['query'];
  client.insert = guarded(client.insert.bind(client)) as ClickHouseClient['insert'];
  client.command = guarded(client.command.bind(client));
  client.exec = guarded(client.exec.bind(client)) as ClickHouseClient['exec'];
}

/** The deadline of a statement includes the wait for its admission. */
async function untilAborted(work: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return work;
  // After the signal nothing waits for `work`, whose rejection must not stay unhandled.
  work.catch(() => undefined);
  signal.throwIfAborted();
  let stop: () => void = () => undefined;
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
  });
  await Promise.race([work, aborted]).finally(() => signal.removeEventListener('abort', stop));
}

/**
 * For a statement that its sender gives up after this time, and may send again: the server then ends it too. Otherwise abandoned
 * statements would pile up on a slow server and keep it slow.
 */
export function endingAfter(ms: number, settings: NonNullable<Insert['clickhouse_settings']> = {}) {
  return {
    abort_signal: AbortSignal.timeout(ms),
    clickhouse_settings: { ...settings, max_execution_time: ms / 1000 },
  };
}

/** `idleMs`: how long a connection may be idle; 0 leaves that to its agent. */
function connect(
  options: ClickHouseOptions,
  requestMsMax: number,
  agent: Agent,
  // Below the shortest keep-alive of a server (3 s). Otherwise a request may meet a socket that has just closed.
  idleMs = 2_000,
): ClickHouseClient {
  return createClient({
    url: options.url,
    database: options.database,
    application: 'sluice',
    request_timeout: requestMsMax,
    keep_alive: { enabled: true, idle_socket_ttl: idleMs },
    http_agent: agent,
    // On one machine CPU is scarcer than the bandwidth of the loopback.
    compression: { request: false, response: false },
    clickhouse_settings: {
      // With 1 the engine buffers an answer in a file; if its disk is full, it answers 200 and sends nothing.
      wait_end_of_query: 0,
      // The engine buffers the beginning of an answer in memory, so that an early error still gets an error status.
      http_response_buffer_size: '1048576',
      // An error must not look like a row (`answers.ts`).
      http_write_exception_in_output_format: 0,
      // On by default in newer servers: an insert would be answered before it is stored.
      async_insert: 0,
      ...settingsFor(options.tables ?? 'plain'),
    },
    // Faults reach the caller, who logs them.
    log: { level: ClickHouseLogLevel.OFF },
  });
}

// Codes of "cannot parse …", "type mismatch", "unknown element of enum", "value is out of range" and the like.
// @see https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp
const poisonCodes = new Set([
  6, 25, 26, 27, 32, 33, 34, 38, 41, 53, 69, 70, 72, 117, 131, 190, 306, 321, 349, 376, 407, 441, 467, 473,
  691,
]);

/**
 * Whether ClickHouse read the data and refused it: it will refuse the same bytes again. After any other error, the statement may or may
 * not have been carried out.
 */
export function isPoison(error: unknown): boolean {
  return poisonCodes.has(codeOfFault(error));
}

/** Other codes of errors on which the service acts. */
export const faultCodes = {
  badArguments: 36,
  unknownTable: 60,
  unknownDatabase: 81,
  tooManyRows: 158,
  timeoutExceeded: 159,
  notEnoughSpace: 243,
  violatedConstraint: 469,
  accessDenied: 497,
  backupExists: 598,
  backupNotFound: 599,
} as const;

/** Whether ClickHouse did not answer: errors of the connection have other codes, such as ECONNREFUSED. */
export function isConnectionFault(error: unknown): boolean {
  return error instanceof Error && 'code' in error && !(error instanceof ClickHouseError);
}

/** ClickHouse's code of an error, or 0 if the error is not ClickHouse's. */
export function codeOfFault(error: unknown): number {
  return error instanceof ClickHouseError ? Number(error.code) : 0;
}

/** Adds rows to a table. Settles when ClickHouse has them; without rows nothing is sent. */
export async function insertRows(
  client: ClickHouseClient,
  table: string,
  values: readonly object[],
  more: Pick<Insert, 'abort_signal' | 'clickhouse_settings'> = {},
): Promise<void> {
  await client.insert({ table, values, format: 'JSONEachRow', ...more });
}

type Insert = Parameters<ClickHouseClient['insert']>[0];

/** Reads a response to its end and discards it: an unread response blocks its connection. */
export async function drain(stream: NodeJS.ReadableStream): Promise<void> {
  for await (const _ of stream) {
    // Discarded.
  }
}

/** Settings of every statement that removes tables, partitions or rows: without them ClickHouse refuses to remove more than 50 GB. */
export const anySize = { max_table_size_to_drop: '0', max_partition_size_to_drop: '0' } as const;
