// Owns every limit of the embedded ClickHouse process, and the relations between them.

import { availableParallelism, constants, getPriority, totalmem } from 'node:os';

/** The engine shares the machine with Redis and the service. */
const memoryShare = 0.4;
/** No single query may take the memory that inserts need. */
const queryMemoryShare = 0.6;

/** The share of the machine's memory for all embedded servers together. */
const serverMemoryBytesMax = Math.floor(memoryBytes() * memoryShare);

/** The memory of one of several servers, and of one query on it. */
export function memoryOfServer(servers: number) {
  const serverBytesMax = Math.floor(serverMemoryBytesMax / servers);
  return { serverBytesMax, queryBytesMax: Math.floor(serverBytesMax * queryMemoryShare) };
}

/** Each has two slots, so merges and mutations can run together without taking all CPUs from queries. */
export const backgroundPoolSize = Math.max(2, Math.floor(availableParallelism() / 2));

/**
 * No acknowledgement waits for the engine, so that its statements leave the CPUs to the API and Redis; its merges and mutations leave them
 * to its statements too. These count from the niceness with which the process was started.
 */
export const niceness = { ofStatements: nicerBy(5), ofMerges: nicerBy(10) };
export const niceEveryMs = 1_000;

/** Longer than the `idle_socket_ttl` of `@clickhouse/client` (2.5 s): otherwise requests meet a closing socket. */
export const keepAliveSeconds = 30;
/** Connections per protocol; a thread serves each one that has a request. */
export const connectionsMax = 4096;

const MiB = 1024 * 1024;
/** What merges and mutations leave free on the disk (see `room.ts`): this share of it, and at most this many bytes. */
export const keptFreeShare = 0.05;
export const keptFreeBytesMax = 1024 * MiB;
/** The free space that a start needs. A start took 20 KiB; the engine then resumes work that a kill interrupted. */
export const startBytesMin = 4 * MiB;

/** How long a start waits for a data directory that another process holds. */
export const lockMsMax = 1_000;
/** How long running statements may continue after SIGTERM before they are killed. */
export const stopMsMax = 8_000;
/** How long the engine may then take to end them. */
export const killMsMax = 2_000;
/** A statement leaves the list of processes before the last bytes of its reply are sent; this is how long to wait for those. */
export const lastReplyMs = 100;

/** How long an engine that rewrites definitions may take to start. */
export const mendMsMax = 60_000;

if (queryMemoryShare >= 1) throw new Error('queryMemoryShare is too large');

function nicerBy(more: number): number {
  return Math.min(getPriority() + more, constants.priority.PRIORITY_LOW);
}

/** The memory that this process may use: the container's limit if there is one. */
function memoryBytes(): number {
  const limit = process.constrainedMemory() ?? 0;
  return limit > 0 && limit < totalmem() ? limit : totalmem();
}
