// Owns who may do what in the embedded ClickHouse. deploy/clickhouse/users.sql gives the same rights on a server of
// one's own; a test holds the two together.

import { createHash } from 'node:crypto';
import { queryMemoryBytesMax } from './limits.js';
import { elements } from './xml.js';

export type Passwords = {
  readonly sluice: string;
  readonly reader: string;
  /** Of this process, which makes a new one at every start. */
  readonly launcher: string;
};

/** What the service does: in its database whatever it likes, elsewhere as little as possible. */
export function serviceGrants(database: string): string[] {
  return [
    `SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, BACKUP ON ${database}.*`,
    // Tables of other engines read files, URLs and other servers.
    ...['MergeTree', 'ReplacingMergeTree', 'Memory', 'Join', 'Set'].map(
      (engine) => `TABLE ENGINE ON ${engine}`,
    ),
    // For null(…), into which rows are parsed to see which of them ClickHouse refuses.
    'CREATE TEMPORARY TABLE ON *.*',
    ...['backups', 'merges', 'mutations', 'parts', 'processes'].map((table) => `SELECT ON system.${table}`),
  ];
}

/** What people and their tools do. */
export function readerGrants(database: string): string[] {
  return [`SHOW, SELECT ON ${database}.*`];
}

/** What this process does to see who is running, and to stop. */
const launcherGrants = ['SELECT ON system.processes', 'KILL QUERY ON *.*'];

/** The text of `users_config`. Passwords are in it as hashes. */
export function usersConfig(database: string, passwords: Passwords): string {
  const users = [
    user('sluice', passwords.sluice, 'default', serviceGrants(database)),
    user('reader', passwords.reader, 'reader', readerGrants(database)),
    user('launcher', passwords.launcher, 'default', launcherGrants),
    // The process's own statement runs as this one, without a password. It holds the only session that there may be.
    `<default><password></password><networks><ip>127.0.0.1</ip></networks>${rights('start', ['SYSTEM LISTEN ON *.*'])}</default>\n`,
  ];
  return [
    '<clickhouse>\n',
    '<profiles>\n',
    profile('default', serverDefaults),
    // 2: a tool may choose settings for its query, but not more memory; 0 would be without a limit.
    profile(
      'reader',
      { ...serverDefaults, readonly: 2 },
      `<max_memory_usage><min>1</min><max>${queryMemoryBytesMax}</max></max_memory_usage>`,
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

/** Settings that every statement has unless it says otherwise. */
const serverDefaults = {
  // A server's defaults where the embedded engine has others.
  mutations_sync: 0,
  implicit_select: 0,
  allow_introspection_functions: 0,
  max_memory_usage: queryMemoryBytesMax,
};

function profile(name: string, settings: Readonly<Record<string, number>>, constraints = ''): string {
  return `<${name}>\n${elements(settings)}<constraints>${constraints}</constraints>\n</${name}>\n`;
}

function user(name: string, password: string, profileName: string, grants: readonly string[]): string {
  const hash = createHash('sha256').update(password).digest('hex');
  const networks = '<networks><ip>127.0.0.1</ip><ip>::1</ip></networks>';
  return `<${name}><password_sha256_hex>${hash}</password_sha256_hex>${networks}${rights(profileName, grants)}</${name}>\n`;
}

function rights(profileName: string, grants: readonly string[]): string {
  const queries = grants.map((grant) => `<query>GRANT ${grant}</query>`).join('');
  return `<profile>${profileName}</profile><quota>default</quota><grants>${queries}</grants>`;
}
