// Owns the engine's sessions: at most so many at once, waiting requests in order, and the settings, the
// database and the parameters that a session has at the moment. A session is serial, so each statement has
// one for itself. A setting reaches one statement only: before the next one runs, whatever differs from
// what that one asked for is set back, and a session whose state is not known for certain is closed.

import { Session } from 'chdb';
import { ClickHouseException } from './errors.js';
import { placeholderNames, quote } from './sql-text.js';

export type Scope = {
  readonly database: string;
  readonly settings: ReadonlyMap<string, string>;
  readonly parameters: ReadonlyMap<string, string>;
};

export type EngineResult = {
  readonly bytes: Uint8Array;
  readonly rows: number;
  readonly elapsedSeconds: number;
};

/** What a ClickHouse server has and the engine's command line has not. */
const baseSettings: ReadonlyMap<string, string> = new Map([
  ['implicit_select', '0'],
  ['allow_introspection_functions', '0'],
]);

export class EngineSession {
  readonly #session: Session;
  #database = 'default';
  #settings = new Map<string, string>();
  #parameters = new Map<string, string>();
  /** False: the session has to be closed after this statement. */
  usable = true;

  constructor(path: string, connectionArgs: readonly string[]) {
    this.#session = new Session(path, { connectionArgs });
  }

  /** Gives the session exactly this state. Rejects with the engine's error (unknown setting, unknown database). */
  async enter(scope: Scope, sql: string): Promise<void> {
    const wanted = new Map([...baseSettings, ...scope.settings]);
    const changes: string[] = [];
    for (const name of this.#settings.keys()) if (!wanted.has(name)) changes.push(`${name} = DEFAULT`);
    for (const [name, value] of wanted) {
      if (this.#settings.get(name) !== value) changes.push(`${name} = ${quote(value)}`);
    }
    for (const [name, value] of scope.parameters) {
      if (this.#parameters.get(name) !== value) changes.push(`param_${name} = ${quote(value)}`);
    }
    if (changes.length > 0) {
      this.usable = false; // until it is certain that all of it was applied
      await this.run(`SET ${changes.join(', ')}`, 'Null');
      this.#settings = wanted;
      for (const [name, value] of scope.parameters) this.#parameters.set(name, value);
      this.usable = true;
    }
    if (scope.database !== this.#database) {
      this.usable = false;
      await this.run(`USE ${quoteIdentifier(scope.database)}`, 'Null');
      this.#database = scope.database;
      this.usable = true;
    }
    void sql;
  }

  /** True when a placeholder that this statement does not bind would find another statement's value. */
  holdsForeignParameter(scope: Scope, sql: string): boolean {
    if (this.#parameters.size === 0) return false;
    return placeholderNames(sql).some((name) => this.#parameters.has(name) && !scope.parameters.has(name));
  }

  async run(sql: string, format: string): Promise<EngineResult> {
    const result = await this.#session.queryAsync(sql, { format });
    return { bytes: result.bytes(), rows: result.rowsRead, elapsedSeconds: result.elapsed };
  }

  close(): void {
    this.#session.close();
  }
}

export class SessionPool {
  readonly #open: () => EngineSession;
  readonly #sessionsMax: number;
  readonly #waitingMax: number;
  readonly #idle: EngineSession[] = [];
  readonly #waiting: ((session: EngineSession) => void)[] = [];
  #count = 0;

  constructor(open: () => EngineSession, sessionsMax: number, waitingMax: number) {
    this.#open = open;
    this.#sessionsMax = sessionsMax;
    this.#waitingMax = waitingMax;
  }

  /** Runs `work` with a session in the given state; settles when the session is back in the pool. */
  async use<Result>(
    scope: Scope,
    sql: string,
    work: (session: EngineSession) => Promise<Result>,
  ): Promise<Result> {
    let session = await this.#take();
    try {
      if (session.holdsForeignParameter(scope, sql)) session = this.#replace(session);
      try {
        await session.enter(scope, sql);
      } catch {
        // Perhaps its own state is at fault (a database that was dropped): a fresh one says for certain.
        session = this.#replace(session);
        await session.enter(scope, sql);
      }
      return await work(session);
    } finally {
      this.#give(session);
    }
  }

  close(): void {
    for (const session of this.#idle.splice(0)) session.close();
  }

  async #take(): Promise<EngineSession> {
    const idle = this.#idle.pop();
    if (idle !== undefined) return idle;
    if (this.#count < this.#sessionsMax) {
      this.#count += 1;
      try {
        return this.#open();
      } catch (error) {
        this.#count -= 1;
        throw error;
      }
    }
    if (this.#waiting.length >= this.#waitingMax) {
      throw ClickHouseException.of(202, 'TOO_MANY_SIMULTANEOUS_QUERIES', 'Too many simultaneous queries');
    }
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #give(session: EngineSession): void {
    const next = session.usable ? session : this.#replace(session);
    const waiting = this.#waiting.shift();
    if (waiting === undefined) this.#idle.push(next);
    else waiting(next);
  }

  #replace(session: EngineSession): EngineSession {
    session.close();
    return this.#open();
  }
}

function quoteIdentifier(name: string): string {
  return `\`${name.replace(/[\\`]/g, '\\$&')}\``;
}
