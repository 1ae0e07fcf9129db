// A private embedded ClickHouse for tests: the process that `npm start` runs, on ports and data of its own.

import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { clickhousePasswordFile } from '../../src/config.js';
import { type Child, startChild } from './child.js';
import { briefly, plainEnvironment } from './environment.js';
import { freePort, freePorts } from './free-port.js';
import { removeTempDir, tempDir } from './temp-dir.js';

const main = fileURLToPath(new URL('../../deploy/local/clickhouse/main.js', import.meta.url));

export type ClickHouseUser = { readonly name: string; readonly password: string };

export type ClickHouseHandle = Child & {
  /** The URL with the service's user and password, for CLICKHOUSE_URL. */
  readonly url: string;
  /** The URL with the user `tester`, for databases other than the service's own. */
  readonly testerUrl: string;
  /** The URL without a user, for requests that name their own. */
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
  readonly tcpPort?: number;
  /** Its number, from 1, among the servers with one DATA_DIR. */
  readonly number?: number;
  readonly dir?: string;
  readonly tester?: ClickHouseUser;
  /** Whether `remove` removes a folder that was given. */
  readonly ownsDir?: boolean;
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
  const tcpPort = options.tcpPort ?? (await freePort());
  const number = options.number ?? 1;
  const origin = `http://127.0.0.1:${port}`;
  const tester = options.tester ?? { name: 'tester', password: randomBytes(12).toString('hex') };
  if (options.tester === undefined) addTester(dir, tester);
  options.prepare?.(join(dir, 'clickhouse'));
  const child = await startChild({
    name: 'clickhouse',
    program: {
      command: process.execPath,
      args: [...briefly, main, String(number)],
      env: {
        ...plainEnvironment(),
        DATA_DIR: dir,
        CLICKHOUSE_PORT: String(port - number + 1),
        CLICKHOUSE_TCP_PORT: String(tcpPort - number + 1),
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
        // Its data is removed, so it need not stop gracefully.
        await child.kill9();
        if (ownDir || options.ownsDir === true) removeTempDir(dir);
      },
    },
  });
}

/** Starts several servers that are one cluster, in their order. The first one's `remove` removes the data of all, unless their folder was given. */
export async function startClickHouseServers(
  count: number,
  prepare?: (folder: string) => void,
  given?: string,
): Promise<ClickHouseHandle[]> {
  const dir = given ?? tempDir('clickhouse');
  const [port, tcpPort] = [await freePorts(count), await freePorts(count)];
  const env = { CLICKHOUSE_SERVERS: String(count) };
  const servers: ClickHouseHandle[] = [];
  for (let number = 1; number <= count; number += 1) {
    prepare?.(join(dir, number === 1 ? 'clickhouse' : `clickhouse-${number}`));
    const [first] = servers;
    servers.push(
      await startClickHouse({
        ...(number === 1 ? {} : { tester: (first as ClickHouseHandle).tester }),
        dir,
        ownsDir: number === 1 && given === undefined,
        number,
        port: port + number - 1,
        tcpPort: tcpPort + number - 1,
        env,
      }),
    );
  }
  return servers;
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

/** The same URL with the port of a gate or a proxy. */
export function atPort(url: string, port: number): string {
  const other = new URL(url);
  other.port = String(port);
  return other.href.replace(/\/$/, '');
}

/** Settles with ClickHouse's answer to a statement; rejects with its message. */
export async function query(url: string, user: ClickHouseUser, sql: string): Promise<string> {
  // A new connection each time: a kept one may have been closed while the test was busy, or by a server that was killed.
  const headers = { ...credentials(user), connection: 'close' };
  const reply = await fetch(url, { method: 'POST', body: sql, headers }).catch((error: Error) => {
    throw new Error(`no answer from ClickHouse: ${String(error.cause)}`);
  });
  const text = await reply.text();
  if (!reply.ok) throw new Error(`ClickHouse answered ${reply.status}: ${text.slice(0, 2_000)}`);
  return text;
}
