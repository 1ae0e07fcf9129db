// Owns every limit of the embedded ClickHouse process, and the relations between them.

const KiB = 1024;
const MiB = 1024 * KiB;

/** Statements other than INSERT that run at once; each has its own engine session. */
export const readSessionsMax = 16;
/**
 * INSERTs that run at once. They have sessions of their own, so that no query holds them up, and enough of
 * them that an INSERT hardly ever waits: one that waits is not in system.processes yet.
 */
export const insertSessionsMax = 16;
/** KILL statements that run at once: they must not wait behind what they are to end. */
export const killSessionsMax = 2;
/** Requests that wait for a session; the next one is refused with ClickHouse's TOO_MANY_SIMULTANEOUS_QUERIES. */
export const waitingStatementsMax = 1000;

/**
 * libuv threads. A statement holds one as long as it runs; the rest serve file writes and compression.
 * Below the number of sessions a `SELECT 1` would wait behind long queries.
 */
export const threadPoolSize = readSessionsMax + insertSessionsMax + killSessionsMax + 8;

/** Bytes of one INSERT's data, after inflating. They go to a file, not into memory. */
export const insertDataBytesMax = 1024 * MiB;
/** Bytes of a body that holds SQL text (and perhaps data behind it): kept in memory. */
export const queryBodyBytesMax = 256 * MiB;
/** Bytes of one INSERT's data that are kept in memory before they are written out. */
export const insertBufferBytesMax = 8 * MiB;
/** Bytes of URL and headers; ClickHouse's own `http_max_uri_size` is 1 MiB. */
export const headerBytesMax = MiB;

/** A result below this size is sent in one piece, with its summary, and an error gets its own status. */
export const responseBufferBytes = MiB;
/** The same with `wait_end_of_query=1`. */
export const responseBufferBytesMax = 64 * MiB;

/** Longer than the `idle_socket_ttl` of `@clickhouse/client` (2.5 s), or requests meet a closing socket. */
export const keepAliveMs = 30_000;
/** How long a start waits for a data directory that another process has. */
export const lockMsMax = 1_000;
/** The same when that process was killed and is on its way out. */
export const lockDyingMsMax = 60_000;
/** How long running statements may go on after SIGTERM, before they are killed. */
export const stopMsMax = 8_000;
/** How long the engine may take after that until it has ended them. */
export const killMsMax = 2_000;

if (insertBufferBytesMax > insertDataBytesMax) throw new Error('insertBufferBytesMax is too large');
