// A private embedded ClickHouse for tests: the process that `npm start` runs, on ports and data of its own.

import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { clickhousePasswordFile } from '../src/config.js';
import { type Child, startChild } from './child.js';
import { plainEnvironment } from './environment.js';
import { freePort } from './free-port.js';
import { removeTempDir, tempDir } from './temp-dir.js';

const main = fileURLToPath(new URL('../deploy/local/clickhouse/main.js', import.meta.url));

export type ClickHouseUser = { readonly name: string; readonly password: string };

export type ClickHouseHandle = Child & {
  /** With the service's user and password, for CLICKHOUSE_URL. */
  readonly url: string;
  /** With those of `tester`, for databases other than the service's own. */
  readonly testerUrl: string;
  /** Without a user, for requests that name their own. */
  readonly origin: string;
  readonly port: number;
  readonly tcpPort: number;
  /** A user that exists only in tests and may do everything. */
  readonly tester: ClickHouseUser;
  readonly service: ClickHouseUser;
  readonly reader: ClickHouseUser;
  /** The DATA_DIR of the process; kept over kill9 and restart, removed by `remove` or with the process. */
  readonly dir: string;
  /**
   * Runs a statement over HTTP as `tester`; settles with the text of the reply, rejects with the server's error message.
   */
  query(sql: string): Promise<string>;
  /** Kills it and removes its data. */
  remove(): Promise<void>;
};

export type ClickHouseOptions = {
  readonly port?: number;
  readonly dir?: string;
  /** Further environment of the process. */
  readonly env?: NodeJS.ProcessEnv;
  /** Puts data into the engine's folder before it starts. */
  readonly prepare?: (folder: string) => void;
};

/** Starts the engine; settles when `GET /ping` answers 200. This takes seconds, so share one within a test file. */
export async function startClickHouse(options: ClickHouseOptions = {}): Promise<ClickHouseHandle> {
  const ownDir = options.dir === undefined;
  const dir = options.dir ?? tempDir('clickhouse');
  const port = options.port ?? (await freePort());
  const tcpPort = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const tester = { name: 'tester', password: randomBytes(12).toString('hex') };
  addTester(dir, tester);
  options.prepare?.(join(dir, 'clickhouse'));
  const child = await startChild({
    name: 'clickhouse',
    program: {
      command: process.execPath,
      args: [main],
      env: {
        ...plainEnvironment(),
        DATA_DIR: dir,
        CLICKHOUSE_PORT: String(port),
        CLICKHOUSE_TCP_PORT: String(tcpPort),
        ...options.env,
      },
    },
    ipc: true,
    healthy: async () =>
      (await fetch(`${origin}/ping`, { signal: AbortSignal.timeout(2_000) })).status === 200,
    healthyDeadlineMs: 120_000,
  });
  const user = (name: 'sluice' | 'reader'): ClickHouseUser => ({
    name,
    password: readFileSync(clickhousePasswordFile(dir, name), 'utf8').trim(),
  });
  const [service, reader] = [user('sluice'), user('reader')];
  const urlOf = (user: ClickHouseUser) => `http://${user.name}:${user.password}@127.0.0.1:${port}`;
  return Object.defineProperties(child as ClickHouseHandle, {
    url: { value: urlOf(service) },
    testerUrl: { value: urlOf(tester) },
    origin: { value: origin },
    port: { value: port },
    tcpPort: { value: tcpPort },
    tester: { value: tester },
    service: { value: service },
    reader: { value: reader },
    dir: { value: dir },
    query: { value: (sql: string) => query(origin, tester, sql) },
    remove: {
      value: async () => {
        // Its data is removed: nothing has to be in order.
        await child.kill9();
        if (ownDir) removeTempDir(dir);
      },
    },
  });
}

/** Writes the tester's file into the folder that the engine merges into its users. */
function addTester(dir: string, { name, password }: ClickHouseUser): void {
  const folder = join(dir, 'clickhouse-users.d');
  mkdirSync(folder, { recursive: true });
  const hash = createHash('sha256').update(password).digest('hex');
  writeFileSync(
    join(folder, 'tester.xml'),
    `<clickhouse><users><${name}><password_sha256_hex>${hash}</password_sha256_hex><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota><access_management>1</access_management></${name}></users></clickhouse>`,
  );
}

/** Headers that authenticate a request. */
export function credentials({ name, password }: ClickHouseUser): Record<string, string> {
  return { 'X-ClickHouse-User': name, 'X-ClickHouse-Key': password };
}

/** The same URL with another port: that of a gate or a proxy. */
export function atPort(url: string, port: number): string {
  const other = new URL(url);
  other.port = String(port);
  return other.href.replace(/\/$/, '');
}

async function query(origin: string, user: ClickHouseUser, sql: string): Promise<string> {
  const reply = await fetch(origin, { method: 'POST', body: sql, headers: credentials(user) });
  const text = await reply.text();
  if (!reply.ok) throw new Error(`ClickHouse answered ${reply.status}: ${text.slice(0, 2_000)}`);
  return text;
}
