// Questions of the process to its own server: whether it answers and, at a stop, which statements are running. It does not use `fetch`,
// whose first call compiles a parser: that took 118 to 158 ms of CPU, the first call of `node:http` 19 to 24.

import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';

const pollMs = 20;
const answerMsMax = 5_000;

export type Control = ReturnType<typeof createControl>;

/** Makes the control for the user `launcher`, whose password only this process knows. */
export function createControl(port: number, password: string) {
  function ask(sql: string, msMax = answerMsMax): Promise<string> {
    return new Promise((settle, reject) => {
      const asked = request(
        {
          host: '127.0.0.1',
          port,
          method: 'POST',
          headers: { 'X-ClickHouse-User': 'launcher', 'X-ClickHouse-Key': password },
          signal: AbortSignal.timeout(msMax),
        },
        async (reply) => {
          try {
            const answer = await text(reply);
            if (reply.statusCode === 200) settle(answer.trim());
            else reject(new Error(`the engine answered ${reply.statusCode}`));
          } catch (error) {
            reject(error);
          }
        },
      );
      asked.on('error', reject);
      asked.end(sql);
    });
  }

  /**
   * How many statements of other users are running; undefined if the server does not answer in time, for lack of memory, threads or disk.
   */
  async function countOthers(msMax: number): Promise<number | undefined> {
    try {
      const count = await ask(`SELECT count() FROM system.processes WHERE user != 'launcher'`, msMax);
      return /^\d+$/.test(count) ? Number(count) : undefined;
    } catch (error) {
      // The server is not listening yet.
      return codeOf(error) === 'ECONNREFUSED' ? 0 : undefined;
    }
  }

  /** Settles with true when no statement runs, and with false after `ms`. */
  async function idleWithin(ms: number): Promise<boolean> {
    const endsAt = performance.now() + ms;
    for (let left = ms; left > 0; left = Math.floor(endsAt - performance.now())) {
      if ((await countOthers(left)) === 0) return true;
      await pause(pollMs);
    }
    return false;
  }

  return {
    /** Settles with the engine's version once it answers; with a large DATA_DIR that takes longer. */
    async untilAnswered(): Promise<string> {
      for (;;) {
        const version = await ask('SELECT version()').catch(() => '');
        if (version !== '') return version;
        await pause(pollMs);
      }
    },
    idleWithin,
    /** Kills the running statements; settles with true when they have ended, and with false after `ms`. */
    async killWithin(ms: number): Promise<boolean> {
      // The server waits for an insert that itself waits for its client.
      void ask(`KILL QUERY WHERE user != 'launcher' ASYNC`).catch(() => undefined);
      return idleWithin(ms);
    },
  };
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}
