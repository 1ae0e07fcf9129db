// The command line of an import, and the mapping that it names. Each fault is reported in one clear line.

import { readFileSync } from 'node:fs';
import { type ParseArgsConfig, parseArgs } from 'node:util';
import { type PresetName, presetNames } from './presets.js';
import { readTimeFormat } from './times.js';
import { readZone } from './zones.js';

export class ImportError extends Error {}

/** The command by which this program was called: in the project, or from the package `sluice-server`. */
export const program = /sluice-import(\.js)?$/.test(process.argv[1] ?? '')
  ? 'sluice-import'
  : 'npm run --silent import --';

export const usage = `${program} FILE… --app-id APP_ID [OPTION]…

  FILE                      NDJSON, JSON, CSV or Parquet, each also in .gz, .zst or .zip; a folder; a pattern such as 'log-*.csv'; an https:// address; s3://BUCKET/PREFIX, with AWS's environment variables; - is stdin
  --app-id APP_ID           the environment
  --url URL                 the service; default http://127.0.0.1:8080
  --write-key KEY           if the environment requires one, and for --verify (or SLUICE_WRITE_KEY)
  --import-token TOKEN      lifts the limits of bulk requests (or SLUICE_IMPORT_TOKEN): environments set APP_ID --import-until DATE
  --format FORMAT           ndjson, json, csv or parquet, if the file does not show it
  --encoding windows-1252   of files that are neither UTF-8 nor marked as UTF-16
  --null TEXT               what CSV has where nothing is, such as '\\N' or NULL
  --csv-dialect mysql       a backslash goes before quotes, and \\N is nothing

 which column is what
  --preset PRESET           ${presetNames.join(', ')}: exports of other systems
  --mapping FILE            these options as JSON: {"event": "Flight", "identity": "origin"}
  --event NAME              one name for all events, or --event-column COLUMN
  --identity COLUMN         the id of a user in your own database
  --user-id COLUMN          the number that the client library made
  --anonymous-id COLUMN     any other id of a user who is not identified
  --timestamp COLUMN        when it happened; --timestamp-format s, ms, us, ns, or a pattern such as 'M/D/YYYY h:mm A'
  --time-zone ZONE          of times that name none: UTC, +02:00, Europe/Berlin
  --session-id COLUMN
  --properties A,B=NAME     these columns, the second under another name; default: all the rest
  --decimal-comma A,B       numbers of these columns have a decimal comma: 1.234,50
  --key COLUMN              the idempotency key; default: made of the file's content and the row's place

 how
  --dry-run                 reads everything, sends nothing, shows the first ten records and every fault
  --verify                  reads everything again at the end, and asks whether every row is stored
  --state FILE              how far the import has got; default sluice-import.state
  --rejects FILE            the rows that are refused; default sluice-import.rejects.ndjson
  --rate NUMBER             rows a second at most
  --strict                  refuses what it would mend: booleans, nulls, nested objects, texts that are too long
  --allow-identities A,B    words such as guest that the environment allows as identities, so devices are merged into them`;

/** What each column means. A column may be a path into nested objects, such as user.id. */
export type Mapping = ReturnType<typeof mappingOf>;

const formats = ['ndjson', 'json', 'csv', 'parquet'] as const;
export type Format = (typeof formats)[number];

export type ImportOptions = NonNullable<ReturnType<typeof readOptions>>;

const mappingNames = [
  'event',
  'event-column',
  'identity',
  'user-id',
  'anonymous-id',
  'timestamp',
  'timestamp-format',
  'time-zone',
  'session-id',
  'properties',
  'decimal-comma',
  'key',
  'preset',
] as const;
type Given = Partial<Record<(typeof mappingNames)[number], string>>;

/** The parts of a mapping that a preset replaces. */
const columnNames = mappingNames.filter((name) => name !== 'preset');
/** Presets of systems whose exports may have local times. */
const localPresets: readonly PresetName[] = ['mixpanel'];

const text = { type: 'string' } as const;
const flag = { type: 'boolean' } as const;
const config = {
  allowPositionals: true,
  strict: true,
  options: {
    ...(Object.fromEntries(mappingNames.map((name) => [name, text])) as Record<keyof Given, typeof text>),
    'app-id': text,
    url: text,
    'write-key': text,
    'import-token': text,
    format: text,
    encoding: text,
    'csv-dialect': text,
    null: text,
    mapping: text,
    state: text,
    rejects: text,
    rate: text,
    'allow-identities': text,
    'dry-run': flag,
    verify: flag,
    strict: flag,
    help: flag,
  },
} as const satisfies ParseArgsConfig;

/** Reads the command line; undefined if only the usage is wanted. Throws ImportError for a fault. */
export function readOptions(args: readonly string[], env: NodeJS.ProcessEnv) {
  const { values, positionals } = parse(args);
  if (values.help === true || args.length === 0) return undefined;
  const appId = values['app-id'] ?? '';
  if (appId === '') throw new ImportError('--app-id is missing: the environment to import into');
  if (positionals.length === 0) throw new ImportError('no file is named; - is stdin');
  if (values.verify === true && (values['write-key'] ?? env.SLUICE_WRITE_KEY) === undefined)
    throw new ImportError('--verify needs --write-key: receipts are given only to callers with one');
  const given: Given = { ...(values.mapping === undefined ? {} : readMappingFile(values.mapping)) };
  for (const name of mappingNames) if (values[name] !== undefined) given[name] = values[name];
  return {
    files: positionals,
    appId,
    url: urlOf(values.url ?? 'http://127.0.0.1:8080'),
    writeKey: values['write-key'] ?? env.SLUICE_WRITE_KEY,
    importToken: values['import-token'] ?? env.SLUICE_IMPORT_TOKEN,
    format: optional('--format', values.format, formats),
    encoding: optional('--encoding', values.encoding?.toLowerCase(), ['windows-1252']),
    csvDialect: optional('--csv-dialect', values['csv-dialect'], ['mysql']),
    nullText: values.null,
    mapping: mappingOf(given),
    dryRun: values['dry-run'] === true,
    /** Whether to ask the service for a receipt of every row at the end. */
    verify: values.verify === true,
    stateFile: values.state ?? 'sluice-import.state',
    rejectsFile: values.rejects ?? 'sluice-import.rejects.ndjson',
    rowsPerSecondMax: values.rate === undefined ? undefined : rateOf(values.rate),
    strict: values.strict === true,
    /** Words that the environment's settings allow as identities. */
    allowedIdentities: values['allow-identities']?.split(','),
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({ ...config, args: [...args] });
  } catch (error) {
    throw new ImportError((error as Error).message.split('. ')[0] ?? 'the command line is wrong');
  }
}

function readMappingFile(path: string): Given {
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new ImportError(`--mapping ${path}: ${(error as Error).message}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ImportError(`--mapping ${path}: it must be a JSON object`);
  const given: Given = {};
  for (const [name, field] of Object.entries(value)) {
    const known = oneOf(`--mapping ${path}`, name, mappingNames);
    if (typeof field !== 'string') throw new ImportError(`--mapping ${path}: ${name} must be a string`);
    given[known] = field;
  }
  return given;
}

function mappingOf(given: Given) {
  const preset = optional('--preset', given.preset, presetNames);
  const isLocal = preset !== undefined && localPresets.includes(preset);
  const extra = columnNames.find((name) => given[name] !== undefined && !(name === 'time-zone' && isLocal));
  if (preset !== undefined && extra !== undefined)
    throw new ImportError(`--preset ${preset} says which column is what, so --${extra} must not be given`);
  if (preset === undefined) {
    if ((given.event === undefined) === (given['event-column'] === undefined))
      throw new ImportError('exactly one of --event, --event-column and --preset must be given');
    if ([given.identity, given['user-id'], given['anonymous-id']].every((name) => name === undefined))
      throw new ImportError('--identity, --user-id or --anonymous-id must say which column holds the user');
  }
  const zone = given['time-zone'] === undefined ? undefined : readZone(given['time-zone']);
  if (zone === undefined && given['time-zone'] !== undefined)
    throw new ImportError(
      `--time-zone ${given['time-zone']}: it must be UTC, an offset such as +02:00, or a name such as Europe/Berlin`,
    );
  const timeFormat = readTimeFormat(given['timestamp-format'], zone);
  if (typeof timeFormat === 'string') throw new ImportError(`--timestamp-format: ${timeFormat}`);
  const commas = propertiesOf(given['decimal-comma']);
  return {
    timeFormat,
    preset,
    event: given.event,
    eventColumn: given['event-column'],
    identity: given.identity,
    userId: given['user-id'],
    anonymousId: given['anonymous-id'],
    timestamp: given.timestamp,
    sessionId: given['session-id'],
    key: given.key,
    /** The columns that are properties, with the properties' names; undefined: all other columns. */
    properties: propertiesOf(given.properties),
    /** Columns of numbers with a decimal comma. */
    decimalComma: commas && [...commas.keys()],
  };
}

function propertiesOf(list: string | undefined): ReadonlyMap<string, string> | undefined {
  if (list === undefined) return undefined;
  const pairs = list.split(',').map((part) => {
    const [column = '', name = column, ...more] = part.split('=');
    if (column === '' || name === '') throw new ImportError(`--properties ${list}: a name is empty`);
    if (more.length > 0) throw new ImportError(`--properties ${list}: ${part} has two =`);
    return [column, name] as const;
  });
  for (const side of [0, 1] as const) {
    const names = pairs.map((pair) => pair[side]);
    const twice = names.find((name, at) => names.indexOf(name) < at);
    if (twice !== undefined) throw new ImportError(`--properties ${list}: ${twice} is there twice`);
  }
  return new Map(pairs);
}

function optional<const Word extends string>(
  option: string,
  word: string | undefined,
  known: readonly Word[],
): Word | undefined {
  return word === undefined ? undefined : oneOf(option, word, known);
}

function oneOf<Word extends string>(option: string, word: string, known: readonly Word[]): Word {
  const found = known.find((one) => one === word);
  if (found === undefined)
    throw new ImportError(`${option}: there is no ${word}; there are ${known.join(', ')}`);
  return found;
}

/** A URL, perhaps a malformed one, without the name and password that a gateway may want. */
export function withoutPassword(url: string): string {
  return url.replace(/\/\/.*@/s, '//');
}

function urlOf(given: string): string {
  try {
    const url = new URL(given);
    if (url.protocol === 'http:' || url.protocol === 'https:') return given.replace(/\/+$/, '');
  } catch {
    throw new ImportError(`--url ${withoutPassword(given)}: it is not a URL`);
  }
  throw new ImportError(`--url ${withoutPassword(given)}: it must begin with http:// or https://`);
}

function rateOf(given: string): number {
  const rate = /^\d+(\.\d+)?$/.test(given) ? Number(given) : 0;
  // At a lower rate, a chunk of rows would have to wait longer than a timer can.
  if (!(rate >= 0.001)) throw new ImportError(`--rate ${given}: it must be a number of rows a second`);
  return rate;
}
