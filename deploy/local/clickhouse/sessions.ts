// Owns the engine's sessions: at most so many at once, waiting requests in order, and the settings, the
// database and the parameters that a session has at the moment. A session is serial, so each statement has
// one for itself. A setting reaches one statement only: before the next one runs, whatever differs from
// what that one asked for is set back, and a session whose state is not known for certain is closed.

import { Session } from 'chdb';
import { ClickHouseException } from './errors.js';
import { placeholderNames, quote, quoteIdentifier } from './sql-tokens.js';

/** What surrounds a statement: all of it comes from the request, none of it outlives the statement. */
export type Scope = {
  readonly database: string;
  readonly settings: ReadonlyMap<string, string>;
  /** Values of `{name:Type}` as the request has them: in ClickHouse's escaped form. */
  readonly parameters: ReadonlyMap<string, string>;
};

export type EngineResult = {
  readonly bytes: Uint8Array;
  /** Rows of the result, or rows that an INSERT read. */
  readonly rows: number;
  readonly elapsedSeconds: number;
};

/** A text of this length may exceed `max_query_size` (256 KiB), which holds for values of parameters too here. */
const longTextChars = 50_000;

export type OpenSession = () => EngineSession;

export class EngineSession {
  readonly #session: Session;
  readonly #baseSettings: ReadonlyMap<string, string>;
  #settings: ReadonlyMap<string, string> = new Map();
  #parameters = new Map<string, string>();
  #database = 'default';
  #known = true;

  /** Opens a connection to the engine; the first one of the process opens the data directory. */
  constructor(path: string, connectionArgs: readonly string[], baseSettings: ReadonlyMap<string, string>) {
    this.#session = new Session(path, { connectionArgs });
    this.#baseSettings = baseSettings;
  }

  /** False: what the session's state is, is not certain, and it must be closed. */
  get isKnown(): boolean {
    return this.#known;
  }

  /** To be called when a statement may have changed the session itself. */
  distrust(): void {
    this.#known = false;
  }

  /** Gives the session exactly this state. Rejects with the engine's error: unknown setting, database. */
  async enter(scope: Scope): Promise<void> {
    const settings = new Map([...this.#baseSettings, ...scope.settings]);
    const changes: string[] = [];
    for (const name of this.#settings.keys()) if (!settings.has(name)) changes.push(`${name} = DEFAULT`);
    for (const [name, value] of settings) {
      if (this.#settings.get(name) !== value) changes.push(`${name} = ${quote(value)}`);
    }
    for (const [name, value] of scope.parameters) {
      if (this.#parameters.get(name) !== value) changes.push(`param_${name} = ${quote(value)}`);
    }
    if (changes.length > 0) {
      const text = `SET ${changes.join(', ')}`;
      this.#known = false;
      if (text.length > longTextChars) {
        await this.run(`SET max_query_size = ${4 * text.length}`, 'Null');
        const size = settings.get('max_query_size');
        changes.push(`max_query_size = ${size === undefined ? 'DEFAULT' : quote(size)}`);
      }
      await this.run(`SET ${changes.join(', ')}`, 'Null');
      this.#known = true;
      this.#settings = settings;
      for (const [name, value] of scope.parameters) this.#parameters.set(name, value);
    }
    if (scope.database !== this.#database) {
      this.#known = false;
      await this.run(`USE ${quoteIdentifier(scope.database)}`, 'Null');
      this.#known = true;
      this.#database = scope.database;
    }
  }

  /**
   * True when a placeholder that this statement does not bind would find the value of an earlier one.
   * Without its text: when there is such a value at all.
   */
  hasStrangersParameter(scope: Scope, sql: string | undefined): boolean {
    const strangers = [...this.#parameters.keys()].filter((name) => !scope.parameters.has(name));
    if (strangers.length === 0 || sql === undefined) return strangers.length > 0;
    const names = new Set(placeholderNames(sql));
    return strangers.some((name) => names.has(name));
  }

  /** Runs one statement. Nothing can stop it but the engine: KILL QUERY, or a result that nobody reads. */
  async run(sql: string, format: string): Promise<EngineResult> {
    try {
      const result = await this.#session.queryAsync(sql, { format });
      return { bytes: result.bytes(), rows: result.rowsRead, elapsedSeconds: result.elapsed };
    } catch (error) {
      await this.#forgetFailed();
      throw error;
    }
  }

  /**
   * The engine keeps a statement that failed or was killed in system.processes, with its locks, until its
   * session gets another one: KILL QUERY … SYNC would wait for ever, and a dead INSERT would look alive.
   */
  async #forgetFailed(): Promise<void> {
    try {
      await this.#session.queryAsync("SET log_comment = ''", { format: 'Null' });
      this.#settings = new Map([...this.#settings, ['log_comment', '']]);
    } catch {
      this.#known = false;
    }
  }

  close(): void {
    this.#session.close();
  }
}

export class SessionPool {
  readonly #open: OpenSession;
  readonly #sessionsMax: number;
  readonly #waitingMax: number;
  readonly #idle: EngineSession[] = [];
  readonly #waiting: ((session: EngineSession) => void)[] = [];
  #count = 0;

  constructor(open: OpenSession, sessionsMax: number, waitingMax: number) {
    this.#open = open;
    this.#sessionsMax = sessionsMax;
    this.#waitingMax = waitingMax;
  }

  /**
   * Runs `work` with a session in the given state; settles when the session is back. Requests that find no
   * session wait in order. `isWanted` is asked when one is there: nobody's statement does not begin.
   */
  async use<Result>(
    scope: Scope,
    sql: string | undefined,
    isWanted: () => boolean,
    work: (session: EngineSession) => Promise<Result>,
  ): Promise<Result> {
    let session = await this.#take();
    try {
      if (!isWanted()) throw ClickHouseException.of(210, 'NETWORK_ERROR', 'The client closed the connection');
      if (session.hasStrangersParameter(scope, sql)) session = this.#replace(session);
      try {
        await session.enter(scope);
      } catch {
        // Its own past may be at fault, a database that was dropped since: a fresh session says for certain.
        session = this.#replace(session);
        await session.enter(scope);
      }
      return await work(session);
    } finally {
      this.#give(session.isKnown ? session : this.#replace(session));
    }
  }

  /** Adds a session that was opened elsewhere. */
  adopt(session: EngineSession): void {
    this.#count += 1;
    this.#give(session);
  }

  /** Closes idle sessions. Call it when none is in use. */
  close(): void {
    for (const session of this.#idle.splice(0)) session.close();
  }

  async #take(): Promise<EngineSession> {
    const idle = this.#idle.pop();
    if (idle !== undefined) return idle;
    if (this.#count < this.#sessionsMax) {
      const session = this.#open();
      this.#count += 1;
      return session;
    }
    if (this.#waiting.length >= this.#waitingMax) {
      throw ClickHouseException.of(202, 'TOO_MANY_SIMULTANEOUS_QUERIES', 'Too many simultaneous queries');
    }
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #give(session: EngineSession): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#idle.push(session);
    else next(session);
  }

  /** A connection costs 0.1 ms to open. */
  #replace(session: EngineSession): EngineSession {
    session.close();
    return this.#open();
  }
}
