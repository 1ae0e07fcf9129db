// Times of imported rows: RFC 3339, numbers in a given unit, and patterns. The zone of a time is never guessed. Pure.

import { epochSeconds, imports } from '../contract/limits.js';
import { completeTimestamp, readInstant } from '../ingest/timestamp.js';
import { isGiven, RowFault } from './values.js';
import { readOffset, type Zone } from './zones.js';

/** How the times of a column are written. */
export type TimeFormat = {
  readonly kind: 'auto' | 'number' | 'pattern';
  /** Nanoseconds in one unit of a number. */
  readonly unitNs?: number;
  readonly pattern?: { readonly form: RegExp; readonly parts: readonly string[] };
  /** The zone for times that name none. */
  readonly zone: Zone | undefined;
};

/** Milliseconds since 1970; or why there are none, in words that end a sentence about the column. */
export type TimeResult = number | string;

/** What to do about a time that names no zone. */
export const zoneWanted = '--time-zone must say which: UTC, +02:00 or a name such as Europe/Berlin';

const units: Readonly<Record<string, number>> = { s: 1e9, ms: 1e6, us: 1e3, ns: 1 };
const nsPerMs = 1e6;
/** A number in plain decimals. Other texts that JavaScript reads as numbers (blanks, 0x10, lists) are not times. */
const decimal = /^([+-]?)(\d+)(?:\.(\d*))?$/;
/** The farthest from 1970 that a Date can be, in milliseconds. */
const instantMax = 8.64e15;

const tokens = /YYYY|MM|M|DD|D|HH|H|hh|h|mm|ss|S+|A|Z/g;
const longToken: Readonly<Record<string, string>> = { M: 'MM', D: 'DD', H: 'HH', h: 'hh' };

/** Reads the name of a unit, or a pattern. Returns what is wrong if the text is neither. */
export function readTimeFormat(format: string | undefined, zone: Zone | undefined): TimeFormat | string {
  if (format === undefined || format === 'iso') return { kind: 'auto', zone };
  const unitNs = units[format];
  if (unitNs !== undefined) return { kind: 'number', unitNs, zone };
  const parts: string[] = [];
  const source = format.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(tokens, (token) => {
    const part = token[0] === 'S' ? 'S' : token;
    parts.push(longToken[part] ?? part);
    if (part === 'Z') return '(Z|[+-]\\d\\d:?\\d\\d)';
    if (part === 'A') return '([AaPp]\\.?[Mm]\\.?)';
    if (part === 'S') return '(\\d{1,9})';
    // A month or day written with one letter may have one or two digits.
    return token.length === 1 ? '(\\d{1,2})' : `(\\d{${token.length}})`;
  });
  for (const part of ['YYYY', 'MM', 'DD'])
    if (!parts.includes(part))
      return `${format} names no ${part}; it is s, ms, us, ns, iso, or a pattern such as YYYY-MM-DD HH:mm:ss or M/D/YYYY h:mm A`;
  const twice = parts.find((part, at) => parts.indexOf(part) < at);
  if (twice !== undefined) return `${format} names ${twice} twice`;
  if (parts.includes('hh') !== parts.includes('A'))
    return `${format} must name hours of twelve (h or hh) and A together`;
  if (!parts.includes('Z') && zone === undefined) return `${format} holds no zone (Z), so ${zoneWanted}`;
  return { kind: 'pattern', pattern: { form: new RegExp(`^${source}$`), parts }, zone };
}

/** The instant of a value, or why there is none. */
export function readTime(value: unknown, format: TimeFormat): TimeResult {
  const read = instantOf(value, format);
  return typeof read === 'string' || Math.abs(read) <= instantMax ? read : 'is farther away than any date';
}

/**
 * A row's time in milliseconds since 1970. Throws RowFault if it has none: the row would get the time of the import. `whose`: words before
 * the fault.
 */
export function instantIn(column: string, value: unknown, format: TimeFormat, whose = ''): number {
  if (!isGiven(value)) throw new RowFault(`${whose}has no time in the column ${column}`);
  const time = readTime(value, format);
  if (typeof time === 'number') return time;
  throw new RowFault(`${whose}has a time in the column ${column} that ${time}`);
}

function instantOf(value: unknown, { kind, unitNs, pattern, zone }: TimeFormat): TimeResult {
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'is not a date' : value.getTime();
  if (kind === 'number') return timeOfNumber(value, unitNs as number);
  const isNumber = typeof value === 'number' || typeof value === 'bigint';
  if (kind === 'pattern') {
    const match =
      isNumber || typeof value === 'string' ? pattern?.form.exec(String(value).trim()) : undefined;
    if (match === undefined || match === null) return 'does not have the form of --timestamp-format';
    return timeOfParts(match.slice(1), pattern?.parts ?? [], zone);
  }
  if (isNumber || isDecimal(value)) {
    if (isDateToo(value))
      return 'is either a date or milliseconds of 1976; add --timestamp-format YYYYMMDDHHmm with a --time-zone, or --timestamp-format ms';
    if (Number(value) >= epochSeconds.endsBefore) return timeOfNumber(value, nsPerMs);
    return 'is a number that would be a day in 1970 to 1973 as milliseconds; if these are seconds, add --timestamp-format s';
  }
  if (typeof value !== 'string') return 'is not a time';
  const given = value
    .trim()
    .replace(/^(\d{4}-\d\d-\d\d) (?=\d)/, '$1T')
    // BigQuery's spelling.
    .replace(/ UTC$/i, 'Z')
    .replace(/ (?=[zZ+-])/, '');
  const whole = /^\d{4}-\d\d-\d\d$/.test(given) ? `${given}T00:00:00` : given;
  const instant = readInstant(completeTimestamp(whole) ?? whole);
  if (instant !== undefined) return instant;
  const local = readInstant(completeTimestamp(`${whole}Z`) ?? `${whole}Z`);
  if (local === undefined)
    return 'is not RFC 3339, or not a real date; another form is named by --timestamp-format, such as M/D/YYYY h:mm A';
  if (zone === undefined) return `names no time zone; ${zoneWanted}`;
  return zone.instantOf(local);
}

function isDecimal(value: unknown): boolean {
  return typeof value === 'string' && decimal.test(value.trim());
}

/** A date such as 202401011200. Read as milliseconds, it would silently become a time in 1976. */
const dateOfDigits = /^(199\d|20\d\d|2100)(\d\d)(\d\d)(\d\d)(\d\d)(?:\.0*)?$/;

function isDateToo(value: unknown): boolean {
  const [found, ...parts] = dateOfDigits.exec(String(value).trim()) ?? [];
  return (
    found !== undefined && typeof timeOfParts(parts, ['YYYY', 'MM', 'DD', 'HH', 'mm'], undefined) === 'number'
  );
}

/** The time of a number, in whole milliseconds, rounded down. Computed from the digits: in doubles, 1.001 × 1000 is less than 1001. */
function timeOfNumber(value: unknown, unitNs: number): TimeResult {
  if (Number.isSafeInteger(value) && unitNs >= nsPerMs) return (value as number) * (unitNs / nsPerMs);
  const isNumber = typeof value === 'number' || typeof value === 'bigint';
  const match = decimal.exec(isNumber ? String(value) : typeof value === 'string' ? value.trim() : '');
  if (match === null) {
    // Numbers such as 1e-7 and 1e+21.
    if (Number.isFinite(value)) return Math.floor((value as number) * (unitNs / nsPerMs));
    return 'is not a plain number, as --timestamp-format requires';
  }
  const [, sign, whole = '', fraction = ''] = match;
  if (whole.length > imports.timeDigitsMax) return Number.POSITIVE_INFINITY;
  const fractionDigits = Math.round(Math.log10(unitNs));
  const places = fraction.padEnd(fractionDigits, '0').slice(0, fractionDigits);
  const ns = BigInt(whole) * BigInt(unitNs) + BigInt(places === '' ? 0 : places);
  const ms = ns / BigInt(nsPerMs);
  const isWhole = ms * BigInt(nsPerMs) === ns;
  return Number(sign === '-' ? (isWhole ? -ms : -ms - 1n) : ms);
}

function timeOfParts(
  values: readonly string[],
  parts: readonly string[],
  zone: Zone | undefined,
): TimeResult {
  const part = (name: string) => values[parts.indexOf(name)]?.padStart(2, '0');
  const half = part('A')?.toLowerCase();
  const twelfth = Number(part('hh'));
  if (half !== undefined && (twelfth < 1 || twelfth > 12)) return 'has no hour from 1 to 12';
  const hour =
    half === undefined
      ? part('HH')
      : String((twelfth % 12) + (half.startsWith('p') ? 12 : 0)).padStart(2, '0');
  const fraction = values[parts.indexOf('S')];
  const named = part('Z');
  const text = `${part('YYYY')}-${part('MM')}-${part('DD')}T${hour ?? '00'}:${part('mm') ?? '00'}:${part('ss') ?? '00'}.${(fraction ?? '000').padEnd(3, '0')}Z`;
  const local = readInstant(text);
  if (local === undefined) return 'is not a real date';
  if (named !== undefined) return local - (readOffset(named) ?? 0);
  return zone === undefined ? local : zone.instantOf(local);
}
