// The options of a load on a deployment that is already running.

import { availableParallelism } from 'node:os';
import { BenchError } from '../failure.js';
import { flag, list, option, readTable, repeated, text, usageOf, usual, whole } from '../options.js';
import { type Bound, type Percentile, percentiles } from './outcome.js';

const secondsDefault = 10;
/** The seconds of each step in the search for the highest rate. */
const stepSecondsDefault = 60;
const threadsDefault = Math.min(4, Math.max(1, Math.floor(availableParallelism() / 4)));

const table = {
  url: option('URL', 'URL of the API, http or https; a path in front of /api is kept', httpUrl),
  appId: repeated(
    'APP_ID',
    'an environment for this load alone; repeatable: requests take them in turn. Turn its limits off first:\nnpm run admin -- environments set APP_ID --limit bulk_app=none --limit bulk_identity=none --limit app_records=none --limit app_bytes=none',
    list,
  ),
  writeKey: option('KEY', 'if the environment requires one; for a single environment', text),
  clickhouseUrl: option('URL', 'compares the stored records with the acknowledged ones', httpUrl),
  database: usual('sluice', 'NAME', 'the database at that URL', text),
  rate: option(
    'N',
    'requests per second, each due at its time; without it as fast as they are answered',
    whole,
  ),
  connections: option('N', "at most; replaces the scenario's own number", whole),
  duration: option(
    'N',
    `seconds per run (${secondsDefault}; per step of a search ${stepSecondsDefault})`,
    whole,
  ),
  threads: option('N', `threads of the generator (${threadsDefault}; more from 8 cores)`, whole),
  errors: usual('0', 'SHARE', 'of requests that may fail, such as 0.1% or 0.001', share),
  slo: option(
    'LIST',
    'latency bounds: p99=20ms, or p50=5ms,p99.9=100ms. A run with --rate must keep them;\nwithout --rate the bench searches for the highest rate that keeps them',
    (given) => given.split(',').map(bound),
  ),
  step: option(
    'N',
    'the search adds N requests per second per step\n(without it doubles from 100, then halves)',
    whole,
  ),
  payloads: option(
    'FILE',
    'your own records, one JSON object per line; may be gzipped. They repeat when the file ends, so\nidempotency keys get a suffix: each request has new records',
    text,
  ),
  gzip: flag('sends compressed bodies'),
  remove: flag('deletes the users of the run afterwards, by the deletion API. No other load has them'),
  removePayloadUsers: flag(
    'with --payloads and --remove: deletes everybody whom the file names,\nwith all that the account has about them, whoever sent it',
  ),
  apiKey: repeated(
    '[APP_ID:]KEY',
    'for --remove: the key of the account, after the app_id of its Main Production\n(the first --app-id); repeatable, one for each account',
    text,
  ),
  out: option('PATH', 'PATH.json, .md, .hlog (HdrHistogram), .csv and .prom', text),
};

export const outsideUsage = `${usageOf('Options of a load on a running deployment (npm run bench -- single --url URL --app-id APP_ID)', table)}
The exit code is 1 if a bound or the error share is exceeded, if stored and acknowledged records differ, or if records of the run
are left after --remove. It is 2 if the generator or its connections, not the service, ended a search, or if a run did not send all
that was due: the service may carry more.`;

export type OutsideOptions = ReturnType<typeof readOutsideOptions>;

/** Reads the options of a command line. Throws as `readTable` does. */
export function readOutsideOptions(args: readonly string[]) {
  const { appId, apiKey, duration, errors, slo, ...values } = readTable(table, args);
  const { url, rate, step, writeKey, threads = threadsDefault } = values;
  const appIds = appId.flat();
  if (url === undefined) throw new BenchError('--url is missing');
  if (appIds.length === 0 || appIds.some((id) => !/^\d+$/.test(id))) {
    throw new BenchError('--app-id must be given, a number');
  }
  if (values.remove !== apiKey.length > 0) throw new BenchError('--remove and --api-key belong together');
  const removesPayloadUsers = values.remove && values.payloads !== undefined;
  if (removesPayloadUsers && !values.removePayloadUsers) {
    throw new BenchError(
      '--remove with --payloads would delete everybody whom the file names, with all that the account has about them: if you mean that, add --remove-payload-users',
    );
  }
  if (values.removePayloadUsers && !removesPayloadUsers) {
    throw new BenchError('--remove-payload-users belongs to --payloads and --remove');
  }
  if (writeKey !== undefined && appIds.length > 1) {
    throw new BenchError('--write-key is the key of one environment: give one --app-id');
  }
  const searches = slo !== undefined && rate === undefined;
  if (step !== undefined && !searches) throw new BenchError('--step belongs to --slo without --rate');
  return {
    ...values,
    url,
    appIds,
    threads,
    seconds: duration ?? (searches ? stepSecondsDefault : secondsDefault),
    searches,
    errorsMax: errors,
    bounds: slo ?? [],
    /** The users of the run are deleted afterwards from these accounts; from none by default. */
    apiKeys: apiKey.map((given) => {
      const [, id = appIds[0] ?? '', key = ''] = /^(?:(\d+):)?(.+)$/.exec(given) ?? [];
      return { appId: id, apiKey: key };
    }),
  };
}

function httpUrl(given: string, name: string): string {
  if (!/^https?:/.test(given) || !URL.canParse(given)) {
    throw new BenchError(`${name} must be a URL that begins with http:// or https://`);
  }
  return given.replace(/\/+$/, '');
}

function share(given: string, name: string): number {
  const [, number, percent] = /^(\d+(?:\.\d+)?)(%?)$/.exec(given) ?? [];
  const found = Number(number) / (percent === '%' ? 100 : 1);
  if (found >= 0 && found <= 1) return found;
  throw new BenchError(`${name} takes a share such as 0.1% or 0.001, not ${JSON.stringify(given)}`);
}

function bound(given: string): Bound {
  const [, name = '', number, unit] = /^(p\d+(?:\.\d+)?|max)=(\d+(?:\.\d+)?)(ms|s)$/.exec(given.trim()) ?? [];
  const ms = Number(number) * (unit === 's' ? 1_000 : 1);
  if (!Object.hasOwn(percentiles, name) || !(ms > 0)) {
    const names = Object.keys(percentiles).join(', ');
    throw new BenchError(`--slo takes bounds such as p99=20ms, of ${names}, not ${JSON.stringify(given)}`);
  }
  return { percentile: name as Percentile, ms };
}
