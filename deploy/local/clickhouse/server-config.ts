// Owns the settings of the embedded ClickHouse server. They contain no section for a system log, so the server keeps none, and its own log
// is off: no SQL text is written anywhere.

import { backgroundPoolSize, connectionsMax, keepAliveSeconds, memoryOfServer, niceness } from './limits.js';
import { escapeXml, xmlElements } from './xml.js';

const MiB = 1024 * 1024;

/** How long replaced parts stay, since a power cut may destroy the parts that replaced them. This is also the server's default. */
const oldPartsLifetimeSeconds = 480;

const serverSettings = {
  max_connections: connectionsMax,
  keep_alive_timeout: keepAliveSeconds,
  // Caches grow up to these sizes; the defaults are 5 GiB each.
  mark_cache_size: 256 * MiB,
  primary_index_cache_size: 256 * MiB,
  index_mark_cache_size: 64 * MiB,
  background_pool_size: backgroundPoolSize,
  max_thread_pool_free_size: 16,
  os_threads_nice_value_merge_mutate: niceness.ofMerges,
  // How often the engine looks how much memory it has. At the default, every 100 ms, that took a seventh of the CPU of an idle engine.
  memory_worker_period_ms: 1_000,
  // By default, when all slots are taken, the engine waits up to a second before it looks for work again, even if a merge ends sooner. A
  // mutation of 21 parts, none of which had to be rewritten, took 3.3 s; with these settings 0.2 s.
  background_processing_pool_thread_sleep_seconds_if_nothing_to_do: 0.02,
  background_processing_pool_task_sleep_seconds_when_no_work_random_part: 0.02,
};

export type ServerPaths = {
  /** The engine's data directory, which only one process at a time can use. */
  readonly path: string;
  readonly usersFile: string;
  /** The disk `backups`, the only one that `BACKUP` and `RESTORE` may use. */
  readonly backupDir: string;
  /** The bytes that are left free on the disk (`room.ts`). */
  readonly free: number;
  readonly httpPort: number;
  readonly tcpPort: number;
  readonly cluster?: Cluster | undefined;
};

/** Servers that read each other's tables. */
export type Cluster = {
  readonly name: string;
  /** Proves that a caller is another server of the cluster. The other server acts under its user's name, without that user's password. */
  readonly secret: string;
  /** One server for each shard, in order. */
  readonly tcpPorts: readonly number[];
};

/** The text of the configuration file. */
export function serverConfig({
  path,
  usersFile,
  backupDir,
  free,
  httpPort,
  tcpPort,
  cluster,
}: ServerPaths): string {
  return [
    '<clickhouse>\n',
    xmlElements({ path: `${path}/`, users_config: usersFile }),
    xmlElements({ listen_host: '127.0.0.1', http_port: httpPort, tcp_port: tcpPort }),
    xmlElements({ max_server_memory_usage: memoryOfServer(cluster?.tcpPorts.length ?? 1).serverBytesMax }),
    xmlElements(serverSettings),
    `<merge_tree>\n${xmlElements({
      old_parts_lifetime: oldPartsLifetimeSeconds,
      min_free_disk_bytes_to_perform_insert: free,
    })}</merge_tree>\n`,
    `<storage_configuration>\n<disks>\n<default>\n${xmlElements({ keep_free_space_bytes: free })}</default>\n<backups>\n<type>local</type>\n<path>${escapeXml(backupDir)}/</path>\n${xmlElements({ keep_free_space_bytes: 2 * free })}</backups>\n</disks>\n</storage_configuration>\n`,
    '<backups>\n<allowed_disk>backups</allowed_disk>\n</backups>\n',
    cluster === undefined ? '' : remoteServers(cluster),
    '</clickhouse>\n',
  ].join('');
}

function remoteServers({ name, secret, tcpPorts }: Cluster): string {
  const shards = tcpPorts.map(
    (port) => `<shard><replica><host>127.0.0.1</host><port>${port}</port></replica></shard>\n`,
  );
  return `<remote_servers>\n<${name}>\n${xmlElements({ secret })}${shards.join('')}</${name}>\n</remote_servers>\n`;
}
