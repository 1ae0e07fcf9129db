// Owns the settings of the embedded ClickHouse server. No section of a system log is in them, so the server keeps
// none, and its own log is off: no SQL text is written anywhere.

import { backgroundPoolSize, connectionsMax, keepAliveSeconds, serverMemoryBytesMax } from './limits.js';
import { elements, escapeXml } from './xml.js';

const MiB = 1024 * 1024;

/** A server's default too: parts that a power cut may cost are protected by their predecessors. */
const tableSettings = { old_parts_lifetime: 480 };

const serverSettings = {
  max_server_memory_usage: serverMemoryBytesMax,
  max_connections: connectionsMax,
  keep_alive_timeout: keepAliveSeconds,
  // Caches grow to these; the defaults are 5 GiB each.
  mark_cache_size: 256 * MiB,
  primary_index_cache_size: 256 * MiB,
  index_mark_cache_size: 64 * MiB,
  background_pool_size: backgroundPoolSize,
  max_thread_pool_free_size: 16,
  // Requests go before merges and mutations when both want a processor.
  os_threads_nice_value_merge_mutate: 10,
  // When all slots are taken, the next look for work is up to a second later, which the end of a merge does
  // not shorten: a mutation of 21 parts of which none had to be rewritten took 3.3 s. So: 0.2 s.
  background_processing_pool_thread_sleep_seconds_if_nothing_to_do: 0.02,
  background_processing_pool_task_sleep_seconds_when_no_work_random_part: 0.02,
};

export type Places = {
  /** The engine's data directory; one process at a time can have it. */
  readonly path: string;
  readonly usersFile: string;
  /** What `BACKUP` and `RESTORE` may use as the disk `backups`, and nothing else. */
  readonly backupDir: string;
  readonly httpPort: number;
  readonly tcpPort: number;
};

/** The text of the configuration file. */
export function serverConfig({ path, usersFile, backupDir, httpPort, tcpPort }: Places): string {
  return [
    '<clickhouse>\n',
    elements({ path: `${path}/`, users_config: usersFile }),
    elements({ listen_host: '127.0.0.1', http_port: httpPort, tcp_port: tcpPort }),
    elements(serverSettings),
    `<merge_tree>\n${elements(tableSettings)}</merge_tree>\n`,
    `<storage_configuration>\n<disks>\n<backups>\n<type>local</type>\n<path>${escapeXml(backupDir)}/</path>\n</backups>\n</disks>\n</storage_configuration>\n`,
    '<backups>\n<allowed_disk>backups</allowed_disk>\n</backups>\n',
    '</clickhouse>\n',
  ].join('');
}
