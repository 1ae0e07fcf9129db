// Owns the engine's server-level settings, which it reads from a file at the start. A file is given in any
// case: without one the engine would take a config.xml of the working directory. No section of a system log
// is in it, so the engine keeps none, and no SQL text is written anywhere.

import { writeFileSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { dirname, join } from 'node:path';

const MiB = 1024 * 1024;

/** The engine shares the machine with Redis and the service. */
const memoryShare = 0.4;

/** A server's default too: parts that a power cut may cost are protected by their predecessors. */
const tableSettings = { old_parts_lifetime: 480 };

function serverSettings(): Record<string, number> {
  return {
    max_server_memory_usage: Math.floor(memoryBytes() * memoryShare),
    // Caches grow to these; the defaults are 5 GiB each.
    mark_cache_size: 256 * MiB,
    primary_index_cache_size: 256 * MiB,
    index_mark_cache_size: 64 * MiB,
    // Two slots each: merges and mutations at once, without taking all processors from queries.
    background_pool_size: Math.max(2, Math.floor(availableParallelism() / 2)),
    max_thread_pool_free_size: 16,
    // Requests go before merges and mutations when both want a processor.
    os_threads_nice_value_merge_mutate: 10,
    // When all slots are taken, the next look for work is up to a second later, which the end of a merge does
    // not shorten: a mutation of 21 parts of which none had to be rewritten took 3.3 s. So: 0.2 s.
    background_processing_pool_thread_sleep_seconds_if_nothing_to_do: 0.02,
    background_processing_pool_task_sleep_seconds_when_no_work_random_part: 0.02,
  };
}

/** Settings that every statement has unless it says otherwise. */
export function baseSettings(): ReadonlyMap<string, string> {
  return new Map([
    // A server's defaults where the embedded engine has others.
    ['mutations_sync', '0'],
    ['implicit_select', '0'],
    ['allow_introspection_functions', '0'],
    // One query cannot take what the INSERTs need.
    ['max_memory_usage', String(Math.floor(memoryBytes() * memoryShare * 0.6))],
  ]);
}

/**
 * Writes the engine's configuration to `file` and returns the arguments that name it. `BACKUP` and `RESTORE`
 * may use the disk `backups`, which is the folder of this name beside the file, and nothing else.
 */
export function writeEngineArguments(file: string): string[] {
  const backupDir = join(dirname(file), 'backups');
  const sections = [
    elements(serverSettings()),
    `<merge_tree>\n${elements(tableSettings)}</merge_tree>\n`,
    `<storage_configuration>\n<disks>\n<backups>\n<type>local</type>\n<path>${escapeXml(backupDir)}/</path>\n</backups>\n</disks>\n</storage_configuration>\n`,
    '<backups>\n<allowed_disk>backups</allowed_disk>\n</backups>\n',
  ];
  writeFileSync(file, `<clickhouse>\n${sections.join('')}</clickhouse>\n`);
  return [`--config-file=${file}`];
}

function elements(values: Readonly<Record<string, number>>): string {
  return Object.entries(values)
    .map(([name, value]) => `<${name}>${value}</${name}>\n`)
    .join('');
}

function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

/** What this process may use: the container's limit when it has one. */
function memoryBytes(): number {
  const limit = process.constrainedMemory() ?? 0;
  return limit > 0 && limit < totalmem() ? limit : totalmem();
}
