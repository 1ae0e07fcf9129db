// The options of a load on a deployment that runs already.

import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { BenchError } from '../failure.js';
import { optional } from '../options.js';
import type { Bound, Percentile } from './outcome.js';
import { percentiles } from './outcome.js';

export type OutsideOptions = {
  readonly url: string;
  /** Environments, which requests take in turn. The first is the one that a removal asks its token for. */
  readonly appIds: readonly string[];
  /** Absent: what is stored is not compared with what was acknowledged. */
  readonly clickhouseUrl: string | undefined;
  readonly database: string;
  readonly connections: number | undefined;
  readonly rate: number | undefined;
  /** Of one run. */
  readonly seconds: number;
  readonly threads: number;
  /** The share of requests that may end in an error, from 0 to 1. */
  readonly errorsMax: number;
  readonly bounds: readonly Bound[];
  /** Requests per second by which a search for the highest rate goes up. */
  readonly step: number | undefined;
  readonly payloads: string | undefined;
  readonly gzip: boolean;
  readonly writeKey: string | undefined;
  /** Given: the users of the run are deleted afterwards. */
  readonly apiKey: string | undefined;
  readonly out: string | undefined;
};

const secondsDefault = 10;
/** Of each step of a search for the highest rate. */
const stepSecondsDefault = 60;
const threadsMax = 4;

export const outsideUsage = `Options of a load on a deployment that runs already (npm run bench -- single --url URL --app-id APP_ID)
  --url URL            of its API, http or https; a path in front of /api is kept
  --app-id APP_ID      an environment of its own; may be given again, and requests take them in turn. Bulk limits have to be
                       off: npm run admin -- environments set APP_ID --limit bulk_app=none --limit bulk_identity=none
  --write-key KEY      where the environment requires one
  --clickhouse-url URL compares what is stored with what was acknowledged; --database NAME (sluice)
  --rate N             requests per second, each due at its time; without it as fast as they are answered
  --connections N      never more than so many (by the scenario)
  --duration N         seconds of a run (${secondsDefault}; in a search ${stepSecondsDefault})
  --threads N          threads of the generator (1, more from 4 cores)
  --errors SHARE       how many requests may fail: 0.1%, or 0.001 (0)
  --slo LIST           bounds of the latency: p99=20ms, or p50=5ms,p99.9=100ms. With --rate the run has to keep them; without
                       it the highest rate that keeps them is searched, in runs of a minute
  --step N             that search goes up by N requests per second (else it doubles from 100, and then halves)
  --payloads FILE      records to send instead of made ones, a JSON object per line; may be gzipped
  --gzip               sends compressed bodies
  --remove --api-key KEY   deletes the users of the run afterwards, by the deletion API
  --out PATH           PATH.json, .md, .hlog (HdrHistogram), .csv and .prom
The exit code is 1 when a bound or the share of errors was not kept, or when something acknowledged is not stored.`;

/** Reads the options of a command line. Throws BenchError, which names the option that is wrong. */
export function readOutsideOptions(args: readonly string[]): OutsideOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      url: { type: 'string' },
      'app-id': { type: 'string', multiple: true, default: [] },
      'write-key': { type: 'string' },
      'clickhouse-url': { type: 'string' },
      database: { type: 'string', default: 'sluice' },
      rate: { type: 'string' },
      connections: { type: 'string' },
      duration: { type: 'string' },
      threads: { type: 'string' },
      errors: { type: 'string', default: '0' },
      slo: { type: 'string' },
      step: { type: 'string' },
      payloads: { type: 'string' },
      gzip: { type: 'boolean', default: false },
      remove: { type: 'boolean', default: false },
      'api-key': { type: 'string' },
      out: { type: 'string' },
    },
  });
  const appIds = values['app-id'].flatMap((text) => text.split(','));
  if (values.url === undefined) throw new BenchError('--url is missing');
  if (appIds.length === 0 || appIds.some((appId) => !/^\d+$/.test(appId))) {
    throw new BenchError('--app-id must be given, a number');
  }
  if (values.remove !== (values['api-key'] !== undefined)) {
    throw new BenchError('--remove and --api-key belong together');
  }
  if (values.step !== undefined && (values.slo === undefined || values.rate !== undefined)) {
    throw new BenchError('--step belongs to --slo without --rate');
  }
  const searches = values.slo !== undefined && values.rate === undefined;
  return {
    url: httpUrl('--url', values.url),
    appIds,
    clickhouseUrl: values['clickhouse-url'] && httpUrl('--clickhouse-url', values['clickhouse-url']),
    database: values.database,
    connections: optional('--connections', values.connections),
    rate: optional('--rate', values.rate),
    seconds: optional('--duration', values.duration) ?? (searches ? stepSecondsDefault : secondsDefault),
    threads:
      optional('--threads', values.threads) ??
      Math.min(threadsMax, Math.max(1, Math.floor(availableParallelism() / 4))),
    errorsMax: readShare(values.errors),
    bounds: values.slo === undefined ? [] : values.slo.split(',').map(readBound),
    step: optional('--step', values.step),
    payloads: values.payloads,
    gzip: values.gzip,
    writeKey: values['write-key'],
    apiKey: values['api-key'],
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
