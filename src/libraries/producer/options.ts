// The options of `createSluice`, checked and completed.

import { producerLimits as limits } from './limits.js';
import type { Validation } from './records.js';
import type { Dropped, Ignored, Problem, Refusal } from './reports.js';

export type SluiceOptions<V extends Validation = 'strict'> = {
  /** The environment to send to. */
  readonly appId: string;
  /** The address of the Sluice to send to, which also decides the data centre: `https://events.example.com`. */
  readonly baseUrl: string;
  /**
   * `lenient` if the environment is lenient: properties may then have values that it mends, such as booleans and objects. Default:
   * `strict`.
   */
  readonly validation?: V;
  /** A write key, for an environment that requires one and for `receipts`. */
  readonly writeKey?: string | undefined;
  /** The account's API key, for `deleteUsers`; `appId` must then be Main Production's. */
  readonly apiKey?: string | undefined;
  /** How many milliseconds a record waits for others to be sent with; default 500. 0 sends at once. */
  readonly intervalMs?: number;
  /** Records of one request, from 1 to 1000; default 500. */
  readonly batchRecords?: number;
  /** Requests under way at the same time; default 4. Records of one user are never in two of them. */
  readonly parallelRequests?: number;
  /** Whether bodies are compressed; default true. */
  readonly gzip?: boolean;
  /** Records that may wait in memory; default 50,000. Their bytes are limited as well, to 64 MiB. */
  readonly queueRecords?: number;
  /** What happens when the queue is full: `wait` (the default) makes callers wait that await the call, `drop` drops the record. */
  readonly whenFull?: 'wait' | 'drop';
  /** A folder used by this process alone, in which waiting records survive a crash: the next process sends them. */
  readonly spoolFolder?: string | undefined;
  /** Whether each write to the spool is synced to disk, so that it survives a power cut too; default false. */
  readonly spoolSync?: boolean;
  /** Bytes that the spool may take; default 1 GiB. */
  readonly spoolBytes?: number;
  /** Milliseconds for one attempt to send; default 30,000. */
  readonly requestMs?: number;
  /** Called with records that the service has finally refused. Without this or a listener, a warning is printed. */
  readonly onRefused?: (refusal: Refusal) => void;
  /** Called with fields of calls that the library does not know, and therefore does not send. */
  readonly onIgnored?: (ignored: Ignored) => void;
  /** Called with records that were given up because the queue was full or the library was closed. */
  readonly onDropped?: (dropped: Dropped) => void;
  /** Called with what currently keeps records from being sent. They stay in the queue. */
  readonly onProblem?: (problem: Problem) => void;
};

type Optional = 'writeKey' | 'apiKey' | 'spoolFolder';
const listeners = ['onRefused', 'onIgnored', 'onDropped', 'onProblem'] as const;

/** The options with their defaults. */
export type Settings = Required<Omit<Given, (typeof listeners)[number] | Optional>> & {
  readonly [Name in Optional]: string | undefined;
};

type Given = SluiceOptions<Validation>;

/** How each option is read. */
const readers: { readonly [Name in keyof Settings]: (given: Given) => Settings[Name] } = {
  appId: ({ appId }) => text('appId', appId),
  baseUrl: (given) => baseUrl(given.baseUrl),
  validation: ({ validation }) => oneOf('validation', validation ?? 'strict', ['strict', 'lenient']),
  writeKey: ({ writeKey }) => optionalText('writeKey', writeKey),
  apiKey: ({ apiKey }) => optionalText('apiKey', apiKey),
  intervalMs: ({ intervalMs = limits.intervalMs }) =>
    number('intervalMs', intervalMs, 0, limits.intervalMsMax),
  batchRecords: ({ batchRecords = limits.batchRecordsMax }) => number('batchRecords', batchRecords, 1, 1000),
  parallelRequests: ({ parallelRequests = limits.parallelRequests }) =>
    number('parallelRequests', parallelRequests, 1, limits.parallelRequestsMax),
  gzip: ({ gzip }) => gzip ?? true,
  queueRecords: ({ queueRecords = limits.queueRecordsMax }) => number('queueRecords', queueRecords, 1, 1e9),
  whenFull: ({ whenFull }) => oneOf('whenFull', whenFull ?? 'wait', ['wait', 'drop']),
  spoolFolder: ({ spoolFolder }) => optionalText('spoolFolder', spoolFolder),
  spoolSync: ({ spoolSync }) => spoolSync ?? false,
  spoolBytes: ({ spoolBytes = limits.spoolBytesMax }) =>
    number('spoolBytes', spoolBytes, 2 * limits.spoolFileBytes, 1e15),
  requestMs: ({ requestMs = limits.requestMs }) => number('requestMs', requestMs, 100, 10 * 60_000),
};

/** Throws TypeError, which names the option, if an option is wrong: a program with wrong settings should not start. */
export function readOptions(given: Given): Settings {
  if (typeof given !== 'object' || given === null)
    throw new TypeError('createSluice needs options: { appId, baseUrl }');
  for (const name of Object.keys(given)) {
    if (![...Object.keys(readers), ...listeners].includes(name))
      throw new TypeError(`there is no option ${name}`);
  }
  const read = Object.entries(readers).map(([name, reader]) => [name, reader(given)]);
  return Object.fromEntries(read) as Settings;
}

function text(name: string, value: unknown): string {
  if (value === undefined || value === null) throw new TypeError(`the option ${name} is missing`);
  if (typeof value === 'number' && Number.isSafeInteger(value)) return String(value);
  if (typeof value !== 'string' || value === '') throw new TypeError(`${name} must be a string`);
  return value;
}

function optionalText(name: string, value: unknown): string | undefined {
  return value === undefined ? undefined : text(name, value);
}

function baseUrl(value: unknown): string {
  if (value === undefined || value === null) throw new TypeError('the option baseUrl is missing');
  const url = typeof value === 'string' ? parseUrl(value) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.search !== '' || url.hash !== '') {
    throw new TypeError('baseUrl must be an http or https address, such as https://events.example.com');
  }
  return url.href.replace(/\/+$/, '');
}

function parseUrl(value: string): URL | undefined {
  try {
    return new URL(value);
  } catch {
    return undefined;
  }
}

function number(name: string, value: unknown, min: number, max: number): number {
  if (typeof value !== 'number' || !(value >= min && value <= max)) {
    throw new TypeError(`${name} must be a number from ${min} to ${max}`);
  }
  return value;
}

function oneOf<const Word extends string>(name: string, value: Word, words: readonly Word[]): Word {
  if (!words.includes(value)) throw new TypeError(`${name} must be ${words.join(' or ')}`);
  return value;
}
