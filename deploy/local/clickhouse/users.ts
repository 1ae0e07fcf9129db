// Owns who may do what in the embedded ClickHouse. deploy/clickhouse/users.sql grants the same rights on any other server; a test compares
// the two.

import { createHash } from 'node:crypto';
import { scratchDatabase } from '../../../src/clickhouse/tables.js';
import { userExports } from '../../../src/contract/limits.js';
import { memoryOfServer } from './limits.js';
import { xmlElements } from './xml.js';

export type Passwords = {
  readonly sluice: string;
  readonly reader: string;
  /** The password by which this process connects, new at every start. */
  readonly launcher: string;
};

/** The rights of the service: everything in its database, as little as possible elsewhere. */
export function serviceGrants(database: string): string[] {
  return [
    // A backup is restored into the second database before it replaces the first. Beside each is one for the tables of rounds.
    ...[database, `${database}_restore`]
      .flatMap((name) => [name, scratchDatabase(name)])
      .map(
        (name) =>
          `SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON ${name}.*`,
      ),
    // To end a long rewriting of parts at once.
    `SYSTEM MERGES ON ${database}.*`,
    // Only these: tables with other engines could read files, URLs and other servers.
    ...['MergeTree', 'ReplacingMergeTree', 'Memory', 'Join', 'Set'].map(
      (engine) => `TABLE ENGINE ON ${engine}`,
    ),
    // For null(…): the service makes ClickHouse parse rows into it, to find the rows that ClickHouse refuses.
    'CREATE TEMPORARY TABLE ON *.*',
    ...['backups', 'detached_parts', 'disks', 'merges', 'mutations', 'parts', 'processes'].map(
      (table) => `SELECT ON system.${table}`,
    ),
  ];
}

/** What the service also needs with several servers: tables that read the tables of the other servers. */
export const serviceClusterGrants = [
  'TABLE ENGINE ON Distributed',
  'REMOTE ON *.*',
  'SELECT ON system.clusters',
];

/** What the service may do in all other tables, but not in the audit log: change or remove lines. */
export function serviceRevokes(database: string): string[] {
  return [`ALTER UPDATE, ALTER DELETE, TRUNCATE ON ${database}.audit_log`];
}

/** What people and their tools can read: the tables described on the page for analysts. */
const forReaders = [
  'events',
  'user_events',
  'users',
  'user_properties',
  'user_identities',
  'failed_events',
  'ledger',
  'audit_log',
];

/** The tables behind the views. ClickHouse requires the right to read them from whoever reads the views. */
const behindViews = [
  'stored_events',
  'stored_user_properties',
  'stored_user_identities',
  'merged_identities',
  'merged_user_properties',
];

/** The additional views of several servers. */
const ofSeveralServers = [
  'local_events',
  'local_user_events',
  'local_users',
  'local_user_properties',
  'local_user_identities',
  'local_merged_identities',
  'local_merged_user_properties',
];

/**
 * The rights of people and their tools. What is not named here they can neither read nor see: hashes, secrets, the index of keys, and what
 * deletions and suppressions keep.
 */
export function readerGrants(database: string): string[] {
  return [...forReaders, ...behindViews, ...ofSeveralServers].map(
    (table) => `SELECT ON ${database}.${table}`,
  );
}

/** Lets a filter on the identity of `user_events` use the index of events that came with a user_id. */
const readerSettings = { enable_join_runtime_filters_index_analysis: 1 };

/** The rights of this process: to see which statements are running, and to kill them. */
const launcherGrants = ['SELECT ON system.processes', 'KILL QUERY ON *.*'];

/** The text of `users_config`, with passwords as hashes. */
export function usersConfig(database: string, passwords: Passwords, servers = 1): string {
  const grants = [...serviceGrants(database), ...(servers > 1 ? serviceClusterGrants : [])];
  const { queryBytesMax } = memoryOfServer(servers);
  const defaults = { ...serverDefaults, max_memory_usage: queryBytesMax };
  const users = [
    user('sluice', passwords.sluice, 'default', grants, serviceRevokes(database)),
    user('reader', passwords.reader, 'reader', readerGrants(database)),
    user('launcher', passwords.launcher, 'default', launcherGrants),
    // The process's own statement runs as this user, without a password. It holds the only session that the user may have.
    `<default><password></password><networks><ip>127.0.0.1</ip></networks>${rights('start', ['SYSTEM LISTEN ON *.*'])}</default>\n`,
  ];
  return [
    '<clickhouse>\n',
    '<profiles>\n',
    profile('default', defaults),
    // 2 lets a tool change settings for its query, but not raise this memory limit. 0 would mean no limit.
    profile(
      'reader',
      { ...defaults, ...readerSettings, readonly: 2 },
      // Without this mask, rows that a deletion has hidden would be shown.
      `<max_memory_usage><min>1</min><max>${queryBytesMax}</max></max_memory_usage><apply_deleted_mask><readonly/></apply_deleted_mask>`,
    ),
    profile(
      'start',
      { max_sessions_for_user: 1 },
      '<max_sessions_for_user><readonly/></max_sessions_for_user>',
    ),
    '</profiles>\n<quotas><default></default></quotas>\n',
    `<users>\n${users.join('')}</users>\n`,
    '</clickhouse>\n',
  ].join('');
}

/** Settings that every statement has by default. */
const serverDefaults = {
  // How long the server waits for a caller who reads nothing. It takes this only from the default profile, when it starts; no statement
  // can set it. The reader of an export may pause for a third of this: a slow one frees the server's buffer only after two of its steps.
  http_send_timeout: (3 * userExports.stalledMsMax) / 1_000,
  // Settings whose defaults differ between a server and the embedded engine, with the server's values.
  mutations_sync: 0,
  implicit_select: 0,
  allow_introspection_functions: 0,
  // Expressions are compiled to machine code at the hundredth use instead of the third: each takes 35 ms of CPU, and saves a tenth of a
  // scan of millions of rows.
  min_count_to_compile_expression: 100,
  min_count_to_compile_aggregate_expression: 100,
  min_count_to_compile_sort_description: 100,
};

function profile(name: string, settings: Readonly<Record<string, number>>, constraints = ''): string {
  return `<${name}>\n${xmlElements(settings)}<constraints>${constraints}</constraints>\n</${name}>\n`;
}

function user(
  name: string,
  password: string,
  profileName: string,
  grants: readonly string[],
  revokes: readonly string[] = [],
): string {
  const hash = createHash('sha256').update(password).digest('hex');
  const networks = '<networks><ip>127.0.0.1</ip><ip>::1</ip></networks>';
  return `<${name}><password_sha256_hex>${hash}</password_sha256_hex>${networks}${rights(profileName, grants, revokes)}</${name}>\n`;
}

function rights(profileName: string, grants: readonly string[], revokes: readonly string[] = []): string {
  const statements = [
    ...grants.map((grant) => `GRANT ${grant}`),
    ...revokes.map((right) => `REVOKE ${right}`),
  ];
  const queries = statements.map((statement) => `<query>${statement}</query>`).join('');
  return `<profile>${profileName}</profile><quota>default</quota><grants>${queries}</grants>`;
}
