// What the start says when everything runs: where things listen, and what to try.

import { relative } from 'node:path';
import { type Config, clickhousePasswordFile } from '../../src/config.js';
import type { Administration } from './administration.js';
import { urlHost } from './children.js';

/** The answer of `admin bootstrap`. */
export type Bootstrap = {
  readonly created: boolean;
  readonly restored: boolean;
  readonly account_id: string;
  readonly environments: readonly {
    readonly app_id: string;
    readonly name: string;
    readonly main: boolean;
  }[];
  /** Only when the account was created now. */
  readonly api_key?: string;
};

/** Returns the lines. The passwords of REDIS_URL and CLICKHOUSE_URL are not among them. */
export function greeting(
  config: Config,
  { environments, api_key }: Bootstrap,
  { tokenFile, demo }: Administration,
): string[] {
  const host = urlHost(config.host);
  const main = environments.find((environment) => environment.main) ?? environments[0];
  const clickhouse = curlClickHouse(config);
  const reader = shortPath(clickhousePasswordFile(config.dataDir, 'reader'));
  const event = {
    app_id: main?.app_id,
    identity: 'ada@example.com',
    event: 'order_completed',
    properties: { plan: 'pro', amount: 12.5 },
  };
  const lookup = `SELECT * FROM events WHERE app_id = '${main?.app_id}' ORDER BY received_at DESC LIMIT 3 FORMAT Vertical`;
  return [
    '',
    'Sluice runs. Ctrl-C stops it; the data stays in DATA_DIR.',
    '',
    ...table([
      ['API', config.publicBaseUrl],
      ...(demo ? [['Try it', `http://${host}:${config.adminPort}/demo`]] : []),
      ['Visualizer', `http://${host}:${config.adminPort}/visualizer`],
      ['ADMIN_TOKEN', tokenFile === undefined ? 'as in the environment' : `cat ${shortPath(tokenFile)}`],
      ['Metrics, admin', `http://${host}:${config.adminPort}/metrics`],
      ['Redis', config.redisUrl.split(',').map(withoutSecrets).join(', ')],
      ['ClickHouse', `${withoutSecrets(config.clickhouseUrl)} (database ${config.clickhouseDatabase})`],
      ...(config.clickhouseEmbedded
        ? [
            ['', `tcp://127.0.0.1:${config.clickhouseTcpPort} (native protocol)`],
            ['', `user reader, password: cat ${reader}`],
          ]
        : []),
      ['', `${clickhouse} -d 'SELECT count() FROM events'`],
      ['Data and logs', config.dataDir],
      ...environments.map(({ name, app_id }) => [`app_id`, `${app_id}  ${name}`]),
      ...(api_key === undefined ? [] : [['API key', `${api_key}  (shown only now)`]]),
    ]),
    '',
    'Track an event:',
    `  curl -s http://${host}:${config.port}/api/track -H 'content-type: application/json' -d '${JSON.stringify(event)}'`,
    'Read it back, a moment later:',
    `  ${clickhouse} -d "${lookup}"`,
    'Administer accounts, environments and API keys (with the same environment variables):',
    '  npm run --silent admin -- accounts list',
    '',
  ];
}

function curlClickHouse(config: Config): string {
  const url = new URL(config.clickhouseUrl);
  const user = config.clickhouseEmbedded
    ? ` -u "reader:$(cat ${shortPath(clickhousePasswordFile(config.dataDir, 'reader'))})"`
    : url.username === ''
      ? ''
      : ` -u '${url.username}:PASSWORD'`;
  const path = url.pathname.replace(/\/*$/, '/');
  return `curl -s${user} '${url.origin}${path}?database=${config.clickhouseDatabase}'`;
}

function withoutSecrets(address: string): string {
  const url = new URL(address);
  url.username = '';
  url.password = '';
  url.search = '';
  return url.href.replace(/\/$/, '');
}

/** From the folder of the start, when it lies below that. */
/** As a shell takes it. */
function shortPath(path: string): string {
  const below = relative('', path);
  const short = below.startsWith('..') ? path : below;
  return /^[\w./-]+$/.test(short) ? short : `'${short.replaceAll("'", "'\\''")}'`;
}

function table(rows: readonly (readonly string[])[]): string[] {
  return rows.map(([name = '', value = '']) => `  ${name.padEnd(16)}${value}`);
}
