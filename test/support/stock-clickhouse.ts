// ClickHouse's own server with a configuration like the one that its packages install, and files in its config.d.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Child, startChild } from '../../harness/child.js';
import { plainEnvironment } from '../../harness/environment.js';
import { freePort } from '../../harness/free-port.js';
import { tempDir } from '../../harness/temp-dir.js';
import { root } from './deploy-file.js';

/** The sections of system logs that the packages' config.xml has, those that it divides by month first. */
const dividedLogs = [
  'query_log',
  'trace_log',
  'query_thread_log',
  'query_views_log',
  'part_log',
  'processors_profile_log',
  'asynchronous_insert_log',
  'backup_log',
  's3queue_log',
  'blob_storage_log',
];
const otherLogs = ['text_log', 'asynchronous_metric_log', 'opentelemetry_span_log'];
const sampledLogs = ['metric_log', 'latency_log', 'error_log', 'query_metric_log'];

export type StockOptions = {
  /** Of the native protocol. */
  readonly nativePort?: number;
  /** A file for users.d. */
  readonly users?: string;
  readonly env?: NodeJS.ProcessEnv;
};

/** Starts it; rejects with what it said when it cannot start. `files` go into config.d. */
export async function startStockClickHouse(
  files: Readonly<Record<string, string>>,
  { nativePort, users, env = {} }: StockOptions = {},
): Promise<Child & { readonly origin: string }> {
  const dir = tempDir('stock-clickhouse');
  const [httpPort, tcpPort] = [await freePort(), nativePort ?? (await freePort())];
  mkdirSync(join(dir, 'config.d'));
  writeFileSync(join(dir, 'config.xml'), stockConfig(dir, httpPort, tcpPort));
  writeFileSync(join(dir, 'users.xml'), stockUsers);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, 'config.d', name), text);
  if (users !== undefined) {
    mkdirSync(join(dir, 'users.d'));
    writeFileSync(join(dir, 'users.d', 'users.xml'), users);
  }
  const origin = `http://127.0.0.1:${httpPort}`;
  const child = await startChild({
    name: 'stock-clickhouse',
    program: {
      command: process.execPath,
      args: ['--input-type=module', '--eval', starter, join(dir, 'config.xml')],
      env: { ...plainEnvironment(), TZ: 'UTC', ...env },
      cwd: dir,
    },
    ipc: false,
    healthy: async () =>
      (await fetch(`${origin}/ping`, { signal: AbortSignal.timeout(2_000) })).status === 200,
    healthyDeadlineMs: 60_000,
  });
  return Object.defineProperties(child as Child & { origin: string }, { origin: { value: origin } });
}

/** Runs the engine until it is killed, or until it says why it cannot start. */
const starter = `
  import { loadEngine } from ${JSON.stringify(join(root, 'dist/deploy/local/clickhouse/engine.js'))};
  const engine = loadEngine();
  process.on('SIGTERM', () => engine.exit(0));
  process.stderr.write(await engine.run(process.argv[1]));
  engine.exit(1);`;

function stockConfig(dir: string, httpPort: number, tcpPort: number): string {
  const section = (name: string, more: string) => `<${name}><database>system</database><table>${name}</table>
    <flush_interval_milliseconds>7500</flush_interval_milliseconds>${more}</${name}>`;
  const logs = [
    ...dividedLogs.map((name) => section(name, '<partition_by>toYYYYMM(event_date)</partition_by>')),
    ...otherLogs.map((name) =>
      section(
        name,
        name.startsWith('open') ? '<engine>engine MergeTree order by finish_time_us</engine>' : '',
      ),
    ),
    ...sampledLogs.map((name) =>
      section(name, '<collect_interval_milliseconds>1000</collect_interval_milliseconds>'),
    ),
  ];
  return `<clickhouse>
    <path>${dir}/data/</path><listen_host>127.0.0.1</listen_host>
    <http_port>${httpPort}</http_port><tcp_port>${tcpPort}</tcp_port>
    ${logs.join('\n')}
    <users_config>${dir}/users.xml</users_config>
  </clickhouse>`;
}

/** As installed, a user without a password may do everything, from this machine. */
const stockUsers = `<clickhouse>
    <profiles><default/></profiles><quotas><default/></quotas>
    <users><default><password/><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
      <quota>default</quota><access_management>1</access_management></default></users>
  </clickhouse>`;
