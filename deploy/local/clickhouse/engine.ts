// Owns the engine: one data directory, a pool of sessions for queries and one for INSERTs, and the files
// that stand between HTTP and the engine. INSERT data is a file that the engine reads (FROM INFILE): one
// block, any format, never part of the SQL text. A large result is a named pipe that the engine writes
// (INTO OUTFILE): the pipe's buffer is the back-pressure. Both run on libuv's threads, not on the event loop.

import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdirSync, openSync, rmSync } from 'node:fs';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { drainPending } from 'chdb';
import { ClickHouseException, toException } from './errors.js';
import * as limits from './limits.js';
import { type EngineResult, EngineSession, type Scope, SessionPool } from './sessions.js';
import { type InsertText, quote, type Token } from './sql-text.js';

export type Summary = {
  readonly rows: number;
  readonly writtenRows: number;
  readonly elapsedSeconds: number;
};

export class Engine {
  readonly #directory: string;
  readonly #reads: SessionPool;
  readonly #inserts: SessionPool;
  readonly #pipes: string[] = [];
  #fileCount = 0;
  #running = 0;
  #idle: (() => void) | undefined;

  /**
   * Opens the data directory; throws when it is locked or unusable.
   * @param path the engine's directory
   * @param directory for pipes and data files; emptied here, and nothing in it outlives the process
   */
  constructor(path: string, directory: string, connectionArgs: readonly string[]) {
    this.#directory = directory;
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const openSession = () => new EngineSession(path, connectionArgs);
    this.#reads = new SessionPool(openSession, limits.readSessionsMax, limits.waitingStatementsMax);
    this.#inserts = new SessionPool(openSession, limits.insertSessionsMax, limits.waitingStatementsMax);
    const pipes = Array.from({ length: limits.readSessionsMax }, (_, index) =>
      join(directory, `result-${index}`),
    );
    execFileSync('mkfifo', ['-m', '600', ...pipes]);
    this.#pipes = pipes;
  }

  /** Runs a statement that is not an INSERT with data and not a large query; the result comes in one piece. */
  async run(sql: string, scope: Scope, format: string, keepSession: boolean): Promise<EngineResult> {
    return this.#track(async () =>
      this.#reads.use(scope, sql, async (session) => {
        try {
          return await session.run(sql, format);
        } finally {
          if (!keepSession) session.usable = false;
        }
      }),
    );
  }

  /**
   * Runs a query and hands its result to `consume` as a stream, while it runs. Settles after the engine has
   * ended and the stream was read to its end or destroyed; rejects with the engine's exception, also after
   * a part of the result was delivered.
   */
  async select(
    sql: string,
    statement: { readonly format: Token | undefined; readonly end: number },
    scope: Scope,
    format: string,
    consume: (result: Socket) => void,
  ): Promise<Summary> {
    return this.#track(async () =>
      this.#reads.use(scope, sql, async (session) => {
        const pipe = this.#pipes.pop();
        if (pipe === undefined) throw new Error('more queries than pipes');
        const target = ` INTO OUTFILE ${quote(pipe)} APPEND `;
        const text =
          statement.format === undefined
            ? `${sql.slice(0, statement.end)}${target}FORMAT ${format}`
            : `${sql.slice(0, statement.format.start)}${target}${sql.slice(statement.format.start, statement.end)}`;
        const reading = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
        // Held open while the engine runs: without a writer the reader would see an end before the beginning.
        const writing = openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK);
        const result = new Socket({ fd: reading, readable: true, writable: false });
        const closed = new Promise<void>((resolve) => result.once('close', () => resolve()));
        result.on('error', () => undefined); // reported by the engine's side, or nobody is there any more
        consume(result);
        try {
          const { rows, elapsedSeconds } = await session.run(text, format);
          return { rows, writtenRows: 0, elapsedSeconds };
        } finally {
          closeSync(writing);
          await closed;
          this.#pipes.push(pipe);
        }
      }),
    );
  }

  /** Runs an INSERT. `data` is undefined for an INSERT … SELECT that reads nothing from the request. */
  async insert(sql: string, insert: InsertText, data: DataFile | undefined, scope: Scope): Promise<Summary> {
    return this.#track(async () => {
      const own = insert.settings === undefined ? '' : sql.slice(insert.settings.start, insert.settings.end);
      const given = [...scope.settings].map(([name, value]) => `${name} = ${quote(value)}`).join(', ');
      const settings = [given, own].filter((part) => part !== '').join(', ');
      const settingsClause = settings === '' ? '' : ` SETTINGS ${settings}`;
      const head = sql.slice(0, insert.targetEnd);
      const bare = { ...scope, settings: new Map<string, string>() };
      const text = `${head} ${insertSource(sql, insert, data, settingsClause)}`;
      return this.#inserts.use(bare, text, async (session) => {
        const { rows, elapsedSeconds } = await session.run(text, 'Null');
        return { rows, writtenRows: rows, elapsedSeconds };
      });
    });
  }

  /** A file for the data of one INSERT. The caller removes it after the INSERT. */
  async createDataFile(): Promise<DataFile> {
    this.#fileCount += 1;
    const path = join(this.#directory, `insert-${this.#fileCount}`);
    return new DataFile(path, await open(path, 'wx', 0o600));
  }

  /** Waits for running statements, at most `timeoutMs`, then closes. True: all had ended. */
  async close(timeoutMs: number): Promise<boolean> {
    if (this.#running > 0) {
      const ended = await Promise.race([
        new Promise<boolean>((resolve) => {
          this.#idle = () => resolve(true);
        }),
        new Promise<boolean>((resolve) => setTimeout(() => resolve(false), timeoutMs).unref()),
      ]);
      if (!ended) return false;
    }
    this.#reads.close();
    this.#inserts.close();
    await drainPending();
    rmSync(this.#directory, { recursive: true, force: true });
    return true;
  }

  async #track<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#running += 1;
    try {
      return await work();
    } catch (error) {
      throw toException(error);
    } finally {
      this.#running -= 1;
      if (this.#running === 0) this.#idle?.();
    }
  }
}

function insertSource(
  sql: string,
  insert: InsertText,
  data: DataFile | undefined,
  settingsClause: string,
): string {
  const { source } = insert;
  if (source.kind === 'select') {
    if (source.input === undefined) return `${settingsClause} ${sql.slice(source.start, source.end)}`;
    if (data === undefined) throw ClickHouseException.of(108, 'NO_DATA_TO_INSERT', 'No data to insert');
    const { start, open: bracket, close, format, formatStart } = source.input;
    const before = sql.slice(source.start, start);
    const structure = sql.slice(bracket + 1, close);
    const after = sql.slice(close + 1, formatStart);
    const file = `file(${quote(data.path)}, ${quote(format)}, ${structure}, 'none')`;
    return `${settingsClause} ${before}${file}${after}`;
  }
  if (data === undefined) throw ClickHouseException.of(108, 'NO_DATA_TO_INSERT', 'No data to insert');
  const format = source.kind === 'data' ? source.format : 'Values';
  return `FROM INFILE ${quote(data.path)} COMPRESSION 'none'${settingsClause} FORMAT ${format}`;
}

/** Collects the data of one INSERT: a few MiB in memory, then written out in pieces. */
export class DataFile {
  readonly path: string;
  readonly #handle: FileHandle;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  bytes = 0;

  constructor(path: string, handle: FileHandle) {
    this.path = path;
    this.#handle = handle;
  }

  async append(chunk: Buffer): Promise<void> {
    this.bytes += chunk.length;
    if (this.bytes > limits.insertDataBytesMax) {
      throw ClickHouseException.of(
        307,
        'TOO_MANY_BYTES',
        `INSERT data exceeds ${limits.insertDataBytesMax} bytes`,
      );
    }
    this.#pending.push(chunk);
    this.#pendingBytes += chunk.length;
    if (this.#pendingBytes >= limits.insertBufferBytesMax) await this.#flush();
  }

  /** Writes the rest; after this the engine may read the file. */
  async finish(): Promise<void> {
    await this.#flush();
    await this.#handle.close();
  }

  async remove(): Promise<void> {
    this.#pending = [];
    await this.#handle.close().catch(() => undefined); // already closed by finish()
    await unlink(this.path);
  }

  async #flush(): Promise<void> {
    let pending = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    while (pending.length > 0) {
      const batch = pending.slice(0, 512); // IOV_MAX is 1024 on Linux
      pending = pending.slice(512);
      const bytes = batch.reduce((sum, chunk) => sum + chunk.length, 0);
      const { bytesWritten } = await this.#handle.writev(batch);
      if (bytesWritten < bytes) pending = [Buffer.concat(batch).subarray(bytesWritten), ...pending];
    }
  }
}
