// The options of a load on a deployment that already runs.

import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { BenchError } from '../failure.js';
import { option, optional, usageOf } from '../options.js';
import { type Bound, type Percentile, percentiles } from './outcome.js';

const secondsDefault = 10;
/** Per step of the search for the highest rate. */
const stepSecondsDefault = 60;
const threadsDefault = Math.min(4, Math.max(1, Math.floor(availableParallelism() / 4)));

const table = {
  url: option('URL', 'of its API, http or https; a path in front of /api is kept'),
  'app-id': {
    ...option(
      'APP_ID',
      'an environment of its own; repeatable: requests take them in turn. Turn its bulk limits off first:\nnpm run admin -- environments set APP_ID --limit bulk_app=none --limit bulk_identity=none',
    ),
    multiple: true,
  },
  'write-key': option('KEY', 'if the environment requires one; for a single environment'),
  'clickhouse-url': option('URL', 'compares the stored records with the acknowledged ones'),
  database: option('NAME', 'its database', 'sluice'),
  rate: option('N', 'requests per second, each due at its time; without it as fast as they are answered'),
  connections: option('N', "at most; replaces the scenario's own number"),
  duration: option('N', 'seconds per run', `${secondsDefault}; per step of a search ${stepSecondsDefault}`),
  threads: option('N', 'threads of the generator', `${threadsDefault}; more from 8 cores`),
  errors: option('SHARE', 'of requests that may fail, such as 0.1% or 0.001', '0'),
  slo: option(
    'LIST',
    'latency bounds: p99=20ms, or p50=5ms,p99.9=100ms. A run with --rate must keep them;\nwithout --rate the bench searches for the highest rate that keeps them',
  ),
  step: option(
    'N',
    'the search adds N requests per second per step\n(without it doubles from 100, then halves)',
  ),
  payloads: option(
    'FILE',
    'your own records, one JSON object per line; may be gzipped. They repeat when the file ends, so\nidempotency keys get a suffix: each request has new records',
  ),
  gzip: { type: 'boolean', help: 'sends compressed bodies' },
  remove: { type: 'boolean', help: 'deletes the users of the run afterwards, by the deletion API' },
  'api-key': {
    ...option(
      '[APP_ID:]KEY',
      'for --remove: the key of the account, after the app_id of its Main Production\n(the first --app-id); repeatable, one for each account',
    ),
    multiple: true,
  },
  out: option('PATH', 'PATH.json, .md, .hlog (HdrHistogram), .csv and .prom'),
} as const;

export const outsideUsage = `${usageOf('Options of a load on a running deployment (npm run bench -- single --url URL --app-id APP_ID)', table)}
The exit code is 1 if a bound or the error share is exceeded, if stored and acknowledged records differ, or if records of the run
are left after --remove. It is 2 if the generator, not the service, ended a search: the service may carry more.`;

export type OutsideOptions = ReturnType<typeof readOutsideOptions>;

/** Reads the options of a command line. Throws BenchError, which names the wrong option. */
export function readOutsideOptions(args: readonly string[]) {
  const { values } = parseArgs({ args: [...args], options: table });
  const { url, slo, rate, step, remove, 'api-key': keys = [], 'clickhouse-url': clickhouseUrl } = values;
  const appIds = (values['app-id'] ?? []).flatMap((text) => text.split(','));
  if (url === undefined) throw new BenchError('--url is missing');
  if (appIds.length === 0 || appIds.some((appId) => !/^\d+$/.test(appId))) {
    throw new BenchError('--app-id must be given, a number');
  }
  if ((remove === true) !== keys.length > 0) throw new BenchError('--remove and --api-key belong together');
  if (values['write-key'] !== undefined && appIds.length > 1) {
    throw new BenchError('--write-key is the key of one environment: give one --app-id');
  }
  if (step !== undefined && (slo === undefined || rate !== undefined)) {
    throw new BenchError('--step belongs to --slo without --rate');
  }
  const searches = slo !== undefined && rate === undefined;
  return {
    url: httpUrl('--url', url),
    appIds,
    clickhouseUrl: clickhouseUrl && httpUrl('--clickhouse-url', clickhouseUrl),
    database: values.database ?? 'sluice',
    connections: optional('--connections', values.connections),
    rate: optional('--rate', rate),
    seconds: optional('--duration', values.duration) ?? (searches ? stepSecondsDefault : secondsDefault),
    threads: optional('--threads', values.threads) ?? threadsDefault,
    /** From 0 to 1. */
    errorsMax: readShare(values.errors ?? '0'),
    bounds: slo === undefined ? [] : slo.split(',').map(readBound),
    step: optional('--step', step),
    payloads: values.payloads,
    gzip: values.gzip ?? false,
    writeKey: values['write-key'],
    /** If given, the users of the run are deleted afterwards, in these accounts. */
    apiKeys: keys.map((text) => readApiKey(text, appIds[0] ?? '')),
    out: values.out,
  };
}

function readApiKey(text: string, firstAppId: string): { appId: string; apiKey: string } {
  const [, appId = firstAppId, apiKey = ''] = /^(?:(\d+):)?(.+)$/.exec(text) ?? [];
  return { appId, apiKey };
}

function httpUrl(name: string, text: string): string {
  if (!/^https?:/.test(text) || !URL.canParse(text)) {
    throw new BenchError(`${name} must be a URL that begins with http:// or https://`);
  }
  return text.replace(/\/+$/, '');
}

function readShare(text: string): number {
  const [, number, percent] = /^(\d+(?:\.\d+)?)(%?)$/.exec(text) ?? [];
  const share = Number(number) / (percent === '%' ? 100 : 1);
  if (!(share >= 0 && share <= 1)) {
    throw new BenchError(`--errors takes a share such as 0.1% or 0.001, not ${JSON.stringify(text)}`);
  }
  return share;
}

function readBound(text: string): Bound {
  const [, name = '', number, unit] = /^(p\d+(?:\.\d+)?|max)=(\d+(?:\.\d+)?)(ms|s)$/.exec(text.trim()) ?? [];
  const ms = Number(number) * (unit === 's' ? 1_000 : 1);
  if (!Object.hasOwn(percentiles, name) || !(ms > 0)) {
    const names = Object.keys(percentiles).join(', ');
    throw new BenchError(`--slo takes bounds such as p99=20ms, of ${names}, not ${JSON.stringify(text)}`);
  }
  return { percentile: name as Percentile, ms };
}
