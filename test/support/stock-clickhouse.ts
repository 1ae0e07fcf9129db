// The ClickHouse server as its packages configure it, with files of a test in config.d. From the packages' config.xml it has every section
// on logs, in files and in tables. It leaves out other ports, TLS, caches, dictionaries, and the crash reports that packages send to
// ClickHouse's makers. Since the server runs as a library, it writes only its error log, not the other log or the console.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Child, startChild } from '../harness/child.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { tempDir } from '../harness/temp-dir.js';
import { root } from './deploy-file.js';

const month = 'toYYYYMM(event_date)';

/** How config.xml partitions the log tables, and how long it keeps them if not for ever. */
const tableLogs: Readonly<Record<string, { readonly partitionBy?: string; readonly ttl?: string }>> = {
  query_log: { partitionBy: month },
  trace_log: { partitionBy: month },
  query_thread_log: { partitionBy: month },
  query_views_log: { partitionBy: month },
  part_log: { partitionBy: month },
  text_log: {},
  metric_log: {},
  latency_log: {},
  error_log: {},
  query_metric_log: {},
  asynchronous_metric_log: {},
  opentelemetry_span_log: {},
  // The section has an empty partition_by; the server makes this table at its start.
  crash_log: { partitionBy: '' },
  processors_profile_log: { partitionBy: month, ttl: 'event_date + INTERVAL 30 DAY DELETE' },
  asynchronous_insert_log: { partitionBy: 'event_date', ttl: 'event_date + INTERVAL 3 DAY' },
  backup_log: { partitionBy: month },
  s3queue_log: { partitionBy: month },
  blob_storage_log: { partitionBy: month, ttl: 'event_date + INTERVAL 30 DAY' },
};
const sampledLogs = ['metric_log', 'latency_log', 'error_log', 'query_metric_log'];
/** The logs whose sections have no sizes in config.xml. */
const unsizedLogs = ['query_views_log', 'backup_log', 's3queue_log', 'blob_storage_log'];

export type StockOptions = {
  readonly nativePort?: number;
  /** A file for users.d. */
  readonly users?: string;
  readonly env?: NodeJS.ProcessEnv;
};

export type StockServer = Child & {
  readonly origin: string;
  readonly nativePort: number;
  /** The file to which the server writes errors, unless `files` configure another. */
  readonly errorLog: string;
};

/** Starts the server; rejects with its output if it cannot start. `files` go into config.d. */
export async function startStockClickHouse(
  files: Readonly<Record<string, string>>,
  { nativePort, users, env = {} }: StockOptions = {},
): Promise<StockServer> {
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
  return Object.defineProperties(child as StockServer, {
    origin: { value: origin },
    nativePort: { value: tcpPort },
    errorLog: { value: join(dir, 'errors.log') },
  });
}

/** Runs the engine until it is killed, or prints why it cannot start. */
const starter = `
  import { loadEngine } from ${JSON.stringify(join(root, 'dist/deploy/local/clickhouse/engine.js'))};
  const engine = loadEngine();
  process.on('SIGTERM', () => engine.exit(0));
  process.stderr.write(await engine.run(process.argv[1]));
  engine.exit(1);`;

function stockConfig(dir: string, httpPort: number, tcpPort: number): string {
  return `<clickhouse>
    <logger><level>trace</level><log>${dir}/server.log</log><errorlog>${dir}/errors.log</errorlog>
      <size>1000M</size><count>10</count></logger>
    <path>${dir}/data/</path><listen_host>127.0.0.1</listen_host>
    <http_port>${httpPort}</http_port><tcp_port>${tcpPort}</tcp_port>
    ${Object.keys(tableLogs).map(tableLog).join('\n')}
    <users_config>${dir}/users.xml</users_config>
  </clickhouse>`;
}

function tableLog(name: string): string {
  const { partitionBy, ttl } = tableLogs[name] ?? {};
  const isSmall = name === 'crash_log';
  const [most, reserved, threshold] = isSmall ? [1_024, 1_024, 512] : [1_048_576, 8_192, 524_288];
  const spans = 'engine MergeTree partition by toYYYYMM(finish_date) order by (finish_date, finish_time_us)';
  const elements = {
    database: 'system',
    table: name,
    flush_interval_milliseconds: isSmall ? 1_000 : 7_500,
    partition_by: partitionBy,
    ttl,
    engine: name === 'opentelemetry_span_log' ? spans : undefined,
    level: name === 'text_log' ? 'trace' : undefined,
    collect_interval_milliseconds: sampledLogs.includes(name) ? 1_000 : undefined,
    ...(!unsizedLogs.includes(name) && {
      max_size_rows: most,
      reserved_size_rows: reserved,
      buffer_size_rows_flush_threshold: threshold,
      flush_on_crash: isSmall,
    }),
  };
  const lines = Object.entries(elements).map(([key, value]) =>
    value === undefined ? '' : `<${key}>${value}</${key}>`,
  );
  return `<${name}>${lines.join('')}</${name}>`;
}

/** As installed: the user `default` has no password and may do everything, but only from this machine. */
const stockUsers = `<clickhouse>
    <profiles><default/></profiles><quotas><default/></quotas>
    <users><default><password/><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
      <quota>default</quota><access_management>1</access_management></default></users>
  </clickhouse>`;
