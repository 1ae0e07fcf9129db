// Owns the engine: one data directory, sessions for queries and others for INSERTs, and the files and pipes
// between them and HTTP.

import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { drainPending } from 'chdb';
import { DataFile } from './data-file.js';
import { toException } from './errors.js';
import { insertSessionsMax, killSessionsMax, readSessionsMax, waitingStatementsMax } from './limits.js';
import { createPipes, readPipe, type Sink } from './result-pipe.js';
import { type EngineResult, EngineSession, type OpenSession, type Scope, SessionPool } from './sessions.js';
import { splitSettings, withInfile, withOutfile } from './sql-exchange.js';
import type { InsertText, SelectText } from './sql-text.js';

export type EngineOptions = {
  /** The engine's data directory; one process at a time can have it. */
  readonly path: string;
  /** For pipes and the data of INSERTs. Emptied at the start; nothing in it outlives the process. */
  readonly exchangePath: string;
  readonly connectionArgs: readonly string[];
  /** What every session has, unless a statement says otherwise. */
  readonly baseSettings: ReadonlyMap<string, string>;
};

/** Other than queries and INSERTs; `session`: it changes the session it runs in, as SET does. */
export type SmallStatement = 'other' | 'session' | 'kill';

/** What a statement did, for ClickHouse's summary. */
export type Outcome = {
  readonly resultRows: number;
  readonly writtenRows: number;
  readonly elapsedSeconds: number;
};

export class Engine {
  readonly version: string;
  readonly #exchangePath: string;
  readonly #reads: SessionPool;
  readonly #inserts: SessionPool;
  readonly #kills: SessionPool;
  readonly #pipes: string[];
  #fileCount = 0;
  #running = 0;
  #whenIdle: (() => void)[] = [];

  private constructor(version: string, exchangePath: string, pipes: string[], openSession: OpenSession) {
    this.version = version;
    this.#exchangePath = exchangePath;
    this.#pipes = pipes;
    this.#reads = new SessionPool(openSession, readSessionsMax, waitingStatementsMax);
    this.#inserts = new SessionPool(openSession, insertSessionsMax, waitingStatementsMax);
    this.#kills = new SessionPool(openSession, killSessionsMax, waitingStatementsMax);
  }

  /** Opens the data directory. Throws when another process has it or it cannot be used. */
  static async open(options: EngineOptions): Promise<Engine> {
    const { path, exchangePath, connectionArgs, baseSettings } = options;
    mkdirSync(path, { recursive: true });
    const openSession = () => new EngineSession(path, connectionArgs, baseSettings);
    const first = openSession(); // takes the lock: before that the other files may be somebody else's
    rmSync(exchangePath, { recursive: true, force: true });
    mkdirSync(exchangePath, { recursive: true, mode: 0o700 });
    const pipes = createPipes(exchangePath, readSessionsMax);
    const { bytes } = await first.run('SELECT version()', 'TabSeparated');
    const engine = new Engine(Buffer.from(bytes).toString().trim(), exchangePath, pipes, openSession);
    engine.#reads.adopt(first);
    return engine;
  }

  /** Runs a statement whose result is small; it comes in one piece. */
  async run(sql: string, kind: SmallStatement, scope: Scope, format: string): Promise<EngineResult> {
    const pool = kind === 'kill' ? this.#kills : this.#reads;
    return this.#track(() =>
      pool.use(scope, sql, always, async (session) => {
        if (kind === 'session') session.distrust();
        return session.run(sql, format);
      }),
    );
  }

  /**
   * Runs a query and gives its result to the sink while it runs. Rejects with the engine's exception, also
   * after a part of the result was given.
   */
  async select(sql: string, text: SelectText, scope: Scope, format: string, sink: Sink): Promise<Outcome> {
    return this.#track(() =>
      this.#reads.use(
        scope,
        sql,
        () => !sink.isClosed,
        async (session) => {
          const pipe = this.#pipes.pop();
          if (pipe === undefined) throw new Error('there are fewer pipes than sessions');
          const statement = withOutfile(sql, text, pipe, format);
          try {
            const { rows, elapsedSeconds } = await readPipe(pipe, sink, () => session.run(statement, format));
            return { resultRows: rows, writtenRows: 0, elapsedSeconds };
          } finally {
            this.#pipes.push(pipe);
          }
        },
      ),
    );
  }

  /**
   * Runs an INSERT; its settings become part of the statement. `data` is undefined when it reads nothing
   * from the request. Settles when the rows are stored (or were known by their token).
   */
  async insert(
    sql: string,
    text: InsertText,
    data: DataFile | undefined,
    scope: Scope,
    isWanted: () => boolean,
  ): Promise<Outcome> {
    return this.#track(async () => {
      const { before, within } = splitSettings(scope.settings);
      const statement = withInfile(sql, text, data?.path, within);
      const bare = { ...scope, settings: before };
      // Values are expressions: their parameters are in the data, where nobody looks for them.
      const isOpaque = text.source.kind === 'data' && text.source.format.toLowerCase() === 'values';
      return this.#inserts.use(bare, isOpaque ? undefined : statement, isWanted, async (session) => {
        const { rows, elapsedSeconds } = await session.run(statement, 'Null');
        return { resultRows: rows, writtenRows: rows, elapsedSeconds };
      });
    });
  }

  /** A file for the data of one INSERT. The caller removes it. */
  async createDataFile(): Promise<DataFile> {
    this.#fileCount += 1;
    return DataFile.create(join(this.#exchangePath, `insert-${this.#fileCount}`));
  }

  /**
   * Lets running statements end for `stopMs`, kills them, gives that `killMs`, and closes the engine.
   * Settles with false when some would not end; the process can only be killed then.
   */
  async close(stopMs: number, killMs: number): Promise<boolean> {
    if (!(await this.#idleWithin(stopMs))) {
      await this.run("KILL QUERY WHERE query NOT LIKE 'KILL%' ASYNC", 'kill', plainScope, 'Null');
      if (!(await this.#idleWithin(killMs))) return false;
    }
    this.#reads.close();
    this.#inserts.close();
    this.#kills.close();
    await drainPending();
    rmSync(this.#exchangePath, { recursive: true, force: true });
    return true;
  }

  async #track<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#running += 1;
    try {
      return await work();
    } catch (error) {
      throw toException(error, this.#exchangePath);
    } finally {
      this.#running -= 1;
      if (this.#running === 0) for (const done of this.#whenIdle.splice(0)) done();
    }
  }

  async #idleWithin(milliseconds: number): Promise<boolean> {
    if (this.#running === 0) return true;
    await Promise.race([new Promise<void>((resolve) => this.#whenIdle.push(resolve)), pause(milliseconds)]);
    return this.#running === 0;
  }
}

const plainScope: Scope = { database: 'default', settings: new Map(), parameters: new Map() };

const always = () => true;

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
