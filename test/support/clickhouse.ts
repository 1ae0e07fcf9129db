// A private embedded ClickHouse for tests: the process that `npm start` runs, on a port and data of its own.

import { fileURLToPath } from 'node:url';
import { threadPoolSize } from '../../deploy/local/clickhouse/limits.js';
import { type Child, startChild } from './child.js';
import { plainEnvironment } from './environment.js';
import { freePort } from './free-port.js';
import { removeTempDir, tempDir } from './temp-dir.js';

const main = fileURLToPath(new URL('../../deploy/local/clickhouse/main.js', import.meta.url));

export type ClickHouseHandle = Child & {
  readonly url: string;
  readonly port: number;
  /** The DATA_DIR of the process; kept over kill9 and restart, removed by `remove` or with the process. */
  readonly dir: string;
  /** Runs one statement over HTTP and settles with the text of the reply; rejects with the server's words. */
  query(sql: string): Promise<string>;
  /** Stops it and removes its data. */
  remove(): Promise<void>;
};

export type ClickHouseOptions = {
  readonly port?: number;
  readonly dir?: string;
  /** More environment for the process. */
  readonly env?: NodeJS.ProcessEnv;
};

/** Starts the engine; settles when `GET /ping` answers 200. It takes seconds: share one in a test file. */
export async function startClickHouse(options: ClickHouseOptions = {}): Promise<ClickHouseHandle> {
  const ownDir = options.dir === undefined;
  const dir = options.dir ?? tempDir('clickhouse');
  const port = options.port ?? (await freePort());
  const url = `http://127.0.0.1:${port}`;
  const child = await startChild({
    name: 'clickhouse',
    program: {
      command: process.execPath,
      args: [main],
      env: {
        ...plainEnvironment(),
        UV_THREADPOOL_SIZE: String(threadPoolSize),
        DATA_DIR: dir,
        CLICKHOUSE_PORT: String(port),
        ...options.env,
      },
    },
    ipc: true,
    healthy: async () => (await fetch(`${url}/ping`, { signal: AbortSignal.timeout(2_000) })).status === 200,
    healthyDeadlineMs: 120_000,
  });
  return Object.defineProperties(child as ClickHouseHandle, {
    url: { value: url },
    port: { value: port },
    dir: { value: dir },
    query: { value: (sql: string) => query(url, sql) },
    remove: {
      value: async () => {
        await child.stop();
        if (ownDir) removeTempDir(dir);
      },
    },
  });
}

async function query(url: string, sql: string): Promise<string> {
  const reply = await fetch(url, { method: 'POST', body: sql });
  const text = await reply.text();
  if (!reply.ok) throw new Error(`ClickHouse answered ${reply.status}: ${text.slice(0, 2_000)}`);
  return text;
}
