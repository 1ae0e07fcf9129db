// What the start prints when everything is running: addresses, and what to try.

import { writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { type Config, clickhousePasswordFile } from '../../src/config.js';
import { redisPasswordFile } from '../../src/config-redis.js';
import type { Administration } from './administration.js';
import { urlHost } from './children.js';
import { placesOf } from './clickhouse/places.js';

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
  /** Whether an operator of the console has chosen a password. */
  readonly has_operator: boolean;
  /** Only if the account was created now. */
  readonly api_key?: string;
};

/**
 * Returns the lines to print, without the passwords in REDIS_URL and CLICKHOUSE_URL. `apiKey`, `invitation`: the form in which these are
 * shown.
 */
export function greeting(
  config: Config,
  { environments }: Bootstrap,
  { tokenFile, demo }: Administration,
  apiKey: string | undefined,
  invitation: string | undefined,
): string[] {
  const host = urlHost(config.host);
  const admin = urlHost(config.adminHost);
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
    `Sluice runs. Ctrl-C stops it; the data stays in ${shortPath(config.dataDir)}.`,
    '',
    ...table([
      ['API', config.publicBaseUrl],
      ...(demo ? [['Try it', `http://${admin}:${config.adminPort}/demo`]] : []),
      ['Console', config.adminBaseUrl],
      ...(invitation === undefined
        ? []
        : [
            ['', `to sign in as ${firstOperator}, open the link once:`],
            ['', invitation],
          ]),
      ['Visualizer', `http://${admin}:${config.adminPort}/visualizer`],
      ['ADMIN_TOKEN', tokenFile === undefined ? 'as in the environment' : `cat ${shortPath(tokenFile)}`],
      ['Metrics, admin', `http://${admin}:${config.adminPort}/metrics`],
      ['Redis', redisAddress(config)],
      ...(config.redisEmbedded
        ? [['', `password: cat ${shortPath(redisPasswordFile(config.dataDir))}`]]
        : []),
      [
        'ClickHouse',
        `${config.clickhouseUrls.map(withoutSecrets).join(', ')} (database ${config.clickhouseDatabase})`,
      ],
      ...(config.clickhouseEmbedded
        ? [
            [
              '',
              `${placesOf(config)
                .map(({ tcpPort }) => `tcp://127.0.0.1:${tcpPort}`)
                .join(', ')} (native protocol)`,
            ],
            ['', `user reader, password: cat ${reader}`],
          ]
        : []),
      ['', `${clickhouse} -d 'SELECT count() FROM events'`],
      ['Data and logs', config.dataDir],
      ...environments.map(({ name, app_id }) => [`app_id`, `${app_id}  ${name}`]),
      ...(apiKey === undefined ? [] : [['API key', apiKey]]),
    ]),
    '',
    'Track an event (the console has programs in other languages, on its first page):',
    `  curl -s http://${host}:${config.port}/api/track -H 'content-type: application/json' -d '${JSON.stringify(event)}'`,
    'Read it back, a moment later:',
    `  ${clickhouse} -d "${lookup}"`,
    'Administer accounts, environments and API keys (with the same environment variables):',
    '  npm run --silent admin -- accounts list',
    '',
  ];
}

/** The first person of a deployment. Every start invites them until there is an operator. */
export const firstOperator = 'operator@localhost';

/**
 * How a start shows a secret: on a terminal as text, otherwise as the name of a file that only its owner can read, since the output may go
 * to a log, which keeps it.
 */
export function showSecret(config: Config, name: string, secret: string, isTerminal: boolean): string {
  if (isTerminal) return secret;
  const file = join(config.dataDir, name);
  writeFileSync(file, `${secret}\n`, { mode: 0o600, flush: true });
  return `cat ${shortPath(file)}`;
}

/** How the first start shows the API key. */
export function showApiKey(config: Config, apiKey: string, isTerminal: boolean): string {
  const advice = isTerminal ? 'shown only now' : 'keep it and remove the file';
  return `${showSecret(config, 'api-key', apiKey, isTerminal)}  (${advice})`;
}

function curlClickHouse(config: Config): string {
  const url = new URL(config.clickhouseUrls[0] as string);
  const user = config.clickhouseEmbedded
    ? ` -u "reader:$(cat ${shortPath(clickhousePasswordFile(config.dataDir, 'reader'))})"`
    : url.username === ''
      ? ''
      : ` -u '${url.username}:PASSWORD'`;
  const path = url.pathname.replace(/\/*$/, '/');
  return `curl -s${user} '${url.origin}${path}?database=${config.clickhouseDatabase}'`;
}

/** The embedded Redis is shown with its port, which other programs use. */
function redisAddress({ redisEmbedded, redisNodes, redisPort, redisUrl }: Config): string {
  if (redisEmbedded && redisNodes === 1) return `redis://127.0.0.1:${redisPort}`;
  if (redisUrl.includes('-sentinel://')) return redisUrl.replace(/\/\/.*@/, '//');
  return redisUrl.startsWith('/') ? redisUrl : redisUrl.split(',').map(withoutSecrets).join(', ');
}

function withoutSecrets(address: string): string {
  const url = new URL(address);
  url.username = '';
  url.password = '';
  url.search = '';
  return url.href.replace(/\/$/, '');
}

/** Relative to the folder of the start if it is below that; quoted for a shell if necessary. */
function shortPath(path: string): string {
  const below = relative('', path);
  const short = below.startsWith('..') ? path : below;
  return /^[\w./-]+$/.test(short) ? short : `'${short.replaceAll("'", "'\\''")}'`;
}

function table(rows: readonly (readonly string[])[]): string[] {
  return rows.map(([name = '', value = '']) => `  ${name.padEnd(16)}${value}`);
}
