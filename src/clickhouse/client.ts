// The connection to ClickHouse, embedded or a server alike, and the one place where its faults get a kind.

import { Agent } from 'node:http';
import { type ClickHouseClient, ClickHouseError, ClickHouseLogLevel, createClient } from '@clickhouse/client';

export type { ClickHouseClient } from '@clickhouse/client';

export type ClickHouseOptions = {
  readonly url: string;
  readonly database: string;
  readonly requestMsMax?: number;
};

export function connectClickHouse(options: ClickHouseOptions): ClickHouseClient {
  return createClient({
    url: options.url,
    database: options.database,
    application: 'sluice',
    request_timeout: options.requestMsMax ?? 120_000,
    max_open_connections: 16,
    // Below the shortest keep-alive of a server (3 s), or a request may meet a socket that just closed.
    keep_alive: { enabled: true, idle_socket_ttl: 2_000 },
    // On one machine the processor is scarcer than the loopback.
    compression: { request: false, response: false },
    clickhouse_settings: { wait_end_of_query: 1 },
    // Its faults reach the caller, who logs them.
    log: { level: ClickHouseLogLevel.OFF },
    ...(options.url.startsWith('http:')
      ? { http_agent: new Agent({ keepAlive: true, maxSockets: 16 }) }
      : {}),
  });
}

/**
 * `poison`: ClickHouse read the data and refused it; the same bytes will be refused again.
 * `retry`: anything else; the statement may or may not have been carried out.
 */
export type FaultKind = 'poison' | 'retry';

// Codes of "cannot parse …", "type mismatch", "unknown element of enum", "value is out of range" and the like.
// @see https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp
const poisonCodes = new Set([
  '6',
  '25',
  '26',
  '27',
  '32',
  '33',
  '34',
  '38',
  '41',
  '53',
  '69',
  '70',
  '72',
  '117',
  '131',
  '190',
  '306',
  '321',
  '349',
  '376',
  '407',
  '441',
  '467',
  '473',
  '691',
]);

/** What kind of fault an error of the client is, by its code; without a code it is a fault of the way there. */
export function classifyFault(error: unknown): FaultKind {
  return error instanceof ClickHouseError && poisonCodes.has(error.code) ? 'poison' : 'retry';
}

/** ClickHouse's code of an error, or 0 when it came from elsewhere. */
export function codeOfFault(error: unknown): number {
  return error instanceof ClickHouseError ? Number(error.code) : 0;
}
