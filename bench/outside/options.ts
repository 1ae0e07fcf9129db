// The options of a load on a deployment that already runs.

import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { BenchError } from '../failure.js';
import { option, optional, usageOf } from '../options.js';
import { type Bound, type Percentile, percentiles } from './outcome.js';

const secondsDefault = 10;
/** Per step of the search for the highest rate. */
const stepSecondsDefault = 60;
const threadsMax = 4;

const table = {
  url: option('URL', 'of its API, http or https; a path in front of /api is kept'),
  'app-id': {
    ...option(
      'APP_ID',
      'an environment of its own; repeatable: requests take them in turn. Turn its bulk limits off first:\nnpm run admin -- environments set APP_ID --limit bulk_app=none --limit bulk_identity=none',
    ),
    multiple: true,
  },
  'write-key': option('KEY', 'if the environment requires one'),
  'clickhouse-url': option('URL', 'compares the stored records with the acknowledged ones'),
  database: option('NAME', 'its database', 'sluice'),
  rate: option('N', 'requests per second, each due at its time; without it as fast as they are answered'),
  connections: option('N', "at most; replaces the scenario's own number"),
  duration: option('N', 'seconds per run', `${secondsDefault}; per step of a search ${stepSecondsDefault}`),
  threads: option('N', 'threads of the generator', '1, more from 4 cores'),
  errors: option('SHARE', 'of requests that may fail, such as 0.1% or 0.001', '0'),
  slo: option(
    'LIST',
    'latency bounds: p99=20ms, or p50=5ms,p99.9=100ms. A run with --rate must keep them;\nwithout --rate the bench searches for the highest rate that keeps them',
  ),
  step: option(
    'N',
    'the search adds N requests per second per step\n(without it doubles from 100, then halves)',
  ),
  payloads: option('FILE', 'your own records, one JSON object per line; may be gzipped'),
  gzip: { type: 'boolean', help: 'sends compressed bodies' },
  remove: { type: 'boolean', help: 'deletes the users of the run afterwards, by the deletion API' },
  'api-key': option('KEY', 'for --remove'),
  out: option('PATH', 'PATH.json, .md, .hlog (HdrHistogram), .csv and .prom'),
} as const;

export const outsideUsage = `${usageOf('Options of a load on a running deployment (npm run bench -- single --url URL --app-id APP_ID)', table)}
The exit code is 1 if a bound or the error share is exceeded, or if stored and acknowledged records differ.`;

export type OutsideOptions = ReturnType<typeof readOutsideOptions>;

/** Reads the options of a command line. Throws BenchError, which names the wrong option. */
export function readOutsideOptions(args: readonly string[]) {
  const { values } = parseArgs({ args: [...args], options: table });
  const { url, slo, rate, step, remove, 'api-key': apiKey, 'clickhouse-url': clickhouseUrl } = values;
  const appIds = (values['app-id'] ?? []).flatMap((text) => text.split(','));
  if (url === undefined) throw new BenchError('--url is missing');
  if (appIds.length === 0 || appIds.some((appId) => !/^\d+$/.test(appId))) {
    throw new BenchError('--app-id must be given, a number');
  }
  if ((remove === true) !== (apiKey !== undefined)) {
    throw new BenchError('--remove and --api-key belong together');
  }
  if (step !== undefined && (slo === undefined || rate !== undefined)) {
    throw new BenchError('--step belongs to --slo without --rate');
  }
  const searches = slo !== undefined && rate === undefined;
  const threads = Math.min(threadsMax, Math.max(1, Math.floor(availableParallelism() / 4)));
  return {
    url: httpUrl('--url', url),
    /** A removal asks for its token with the first one. */
    appIds,
    clickhouseUrl: clickhouseUrl && httpUrl('--clickhouse-url', clickhouseUrl),
    database: values.database ?? 'sluice',
    connections: optional('--connections', values.connections),
    rate: optional('--rate', rate),
    seconds: optional('--duration', values.duration) ?? (searches ? stepSecondsDefault : secondsDefault),
    threads: optional('--threads', values.threads) ?? threads,
    /** From 0 to 1. */
    errorsMax: readShare(values.errors ?? '0'),
    bounds: slo === undefined ? [] : slo.split(',').map(readBound),
    step: optional('--step', step),
    payloads: values.payloads,
    gzip: values.gzip ?? false,
    writeKey: values['write-key'],
    /** If given, the users of the run are deleted afterwards. */
    apiKey,
    out: values.out,
  };
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
