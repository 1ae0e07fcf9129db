// What the process asks its own server: whether it answers, and at a stop which statements run.

import { setTimeout as pause } from 'node:timers/promises';

const pollMs = 20;
const answerMsMax = 5_000;

export type Control = {
  /** Settles with the engine's version once it answers, which takes longer with a large DATA_DIR. */
  untilAnswered(): Promise<string>;
  /** Settles with true when no statement runs, and with false after `ms`. */
  idleWithin(ms: number): Promise<boolean>;
  /** Kills the running statements; settles with true when they have ended, and with false after `ms`. */
  killWithin(ms: number): Promise<boolean>;
};

/** For the user `launcher`, whose password only this process knows. */
export function createControl(port: number, password: string): Control {
  async function ask(sql: string, msMax = answerMsMax): Promise<string> {
    const reply = await fetch(`http://127.0.0.1:${port}/`, {
      method: 'POST',
      headers: { 'X-ClickHouse-User': 'launcher', 'X-ClickHouse-Key': password },
      body: sql,
      signal: AbortSignal.timeout(msMax),
    });
    const text = await reply.text();
    if (!reply.ok) throw new Error(`the engine answered ${reply.status}`);
    return text.trim();
  }

  /** How many statements of others run; undefined if the server does not answer in time, for lack of memory or threads. */
  async function countOthers(msMax: number): Promise<number | undefined> {
    try {
      return Number(await ask(`SELECT count() FROM system.processes WHERE user != 'launcher'`, msMax));
    } catch (error) {
      // It does not listen yet.
      return codeOf(error) === 'ECONNREFUSED' ? 0 : undefined;
    }
  }

  async function idleWithin(ms: number): Promise<boolean> {
    const endsAt = performance.now() + ms;
    for (let left = ms; left > 0; left = Math.floor(endsAt - performance.now())) {
      if ((await countOthers(left)) === 0) return true;
      await pause(pollMs);
    }
    return false;
  }

  return {
    async untilAnswered() {
      for (;;) {
        const version = await ask('SELECT version()').catch(() => undefined);
        if (version !== undefined) return version;
        await pause(pollMs);
      }
    },
    idleWithin,
    async killWithin(ms) {
      // The server waits for an insert that waits for its client.
      void ask(`KILL QUERY WHERE user != 'launcher' ASYNC`).catch(() => undefined);
      return idleWithin(ms);
    },
  };
}

function codeOf(error: unknown): string | undefined {
  return ((error as Error).cause as NodeJS.ErrnoException | undefined)?.code;
}
