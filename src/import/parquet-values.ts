// Turns values of Parquet's types into those that CSV and JSON of the same rows would have: decimals by their digits, dates without a time,
// text that is UTF-8. hyparquet decodes what is stored; this decides what each type makes of it. Pure.

import type { SchemaElement, SchemaTree } from 'hyparquet';
import { isoOf } from '../ingest/timestamp.js';
import { parseDocument } from '../parsing/document.js';
import { ImportError } from './options.js';
import { RowFault } from './values.js';
import { utc, type Zone } from './zones.js';

/** Turns a value that hyparquet has decoded into one of JSON, or a Date. Throws RowFault. */
export type Convert = (value: unknown) => unknown;

/** Stands for bytes that are not UTF-8. It is not thrown, since a dictionary is decoded before it is known which rows use its entries. */
class NotText {}
const notText = new NotText();
const strictly = new TextDecoder('utf-8', { fatal: true });

function textIn(bytes: Uint8Array): string | NotText {
  try {
    return strictly.decode(bytes);
  } catch {
    return notText;
  }
}

/** The functions with which hyparquet decodes values that are not left as stored. */
export const parsers = {
  stringFromBytes: (bytes: Uint8Array | undefined) => (bytes === undefined ? undefined : textIn(bytes)),
  geometryFromBytes: (bytes: Uint8Array | undefined) => bytes,
  timestampFromNanoseconds: (ns: bigint) => ns,
} as never;

/**
 * The elements of a schema without their types, so that hyparquet leaves values as they are stored; maps and two-level lists become
 * structures. Three-level lists, which nearly all lists are, stay lists, since they are then read more than twice as fast.
 */
export function withoutTypes(node: SchemaTree): SchemaElement[] {
  const element = withoutType(node.element);
  const isList = annotationOf(node) === 'LIST' && itemOf(node) !== undefined;
  return [isList ? { ...element, converted_type: 'LIST' } : element, ...node.children.flatMap(withoutTypes)];
}

function withoutType(element: SchemaElement): SchemaElement {
  const { converted_type, logical_type, ...plain } = element;
  if (element.type !== 'BYTE_ARRAY') return plain;
  const isText = converted_type === undefined || converted_type === 'UTF8' || converted_type === 'ENUM';
  if (isText && !/^(JSON|BSON|DECIMAL|GEO)/.test(logical_type?.type ?? '')) return element;
  // Only for this type does hyparquet pass on the bytes themselves.
  return { ...plain, logical_type: { type: 'GEOMETRY' } };
}

/**
 * The converter of a column. `isTop`: its times may stay Dates, which are read faster than text. `zone`: of its times, if they name none.
 * Throws ImportError for an unsupported type.
 */
export function converterOf(node: SchemaTree, name: string, isTop = true, zone?: Zone): Convert {
  const convert = converterOfOne(node, name, isTop, zone);
  const one = (value: unknown) => (value === null || value === undefined ? null : convert(value));
  return node.element.repetition_type === 'REPEATED'
    ? (value) => (Array.isArray(value) ? value.map(one) : null)
    : one;
}

type Group = Readonly<Record<string, unknown>>;

/** Whether a group is a LIST or a MAP; empty if it is neither. */
function annotationOf({ element, children }: SchemaTree): string {
  if (children[0]?.element.repetition_type !== 'REPEATED') return '';
  return element.converted_type ?? element.logical_type?.type ?? '';
}

/** The converter of a single value that is not null. */
function converterOfOne(node: SchemaTree, name: string, isTop: boolean, zone?: Zone): Convert {
  const { element, children } = node;
  if (element.logical_type?.type === 'VARIANT') throw unread(name, 'VARIANT');
  const [first] = children;
  if (first === undefined) return leaf(element, name, isTop, zone);
  const inner = (child: SchemaTree) => converterOf(child, `${name}.${child.element.name}`, false);
  const type = annotationOf(node);
  // The repeated field of an empty list may be absent.
  const repeated = (value: unknown) => ((value as Group)[first.element.name] ?? []) as readonly Group[];
  if (type === 'LIST') {
    const item = itemOf(node);
    const convert = inner(item ?? first);
    return item === undefined
      ? (value) => convert(repeated(value))
      : (value) => Array.from(value as ArrayLike<unknown>, convert);
  }
  const [key, item] = first.children;
  if (/^MAP/.test(type) && key && item) {
    const [convertKey, convertItem] = [inner(key), inner(item)];
    const [keyName, itemName] = [key.element.name, item.element.name];
    const pairOf = (one: Group) => [String(convertKey(one[keyName])), convertItem(one[itemName])] as const;
    return (value) => Object.fromEntries(repeated(value).map(pairOf));
  }
  const fields = children.map((child) => [child.element.name, inner(child)] as const);
  return (value) =>
    Object.fromEntries(fields.map(([field, convert]) => [field, convert((value as Group)[field])]));
}

/**
 * The third level of a list, which holds its items. Undefined if the repeated field holds them itself, as in files written before the
 * format defined the levels.
 * @see https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#backward-compatibility-rules
 */
function itemOf({ element, children: [repeated] }: SchemaTree): SchemaTree | undefined {
  const [item, ...others] = repeated?.children ?? [];
  const isItself =
    others.length > 0 ||
    item?.element.repetition_type === 'REPEATED' ||
    repeated?.element.name === 'array' ||
    repeated?.element.name === `${element.name}_tuple`;
  return isItself ? undefined : item;
}

function unread(name: string, type: string): ImportError {
  return new ImportError(
    `the column ${name} is of the type ${type}, which is not read; name the columns that you want by --properties`,
  );
}

/** How a timestamp or a date is to be read. */
export type TimeType = {
  /** Whether its times name no zone. */
  readonly isLocal: boolean;
  readonly unit: 'MILLIS' | 'MICROS' | 'NANOS' | 'DAYS';
};

/** How the times of a column are stored; undefined if it has none. INT96 is local time or UTC, as the program that wrote it chose. */
export function timeTypeOf({ type, converted_type, logical_type }: SchemaElement): TimeType | undefined {
  if (converted_type === 'DATE' || logical_type?.type === 'DATE') return { isLocal: true, unit: 'DAYS' };
  if (type === 'INT96') return { isLocal: true, unit: 'NANOS' };
  if (logical_type?.type === 'TIMESTAMP')
    return { isLocal: !logical_type.isAdjustedToUTC, unit: logical_type.unit };
  if (converted_type === 'TIMESTAMP_MILLIS') return { isLocal: false, unit: 'MILLIS' };
  return converted_type === 'TIMESTAMP_MICROS' ? { isLocal: false, unit: 'MICROS' } : undefined;
}

function leaf(element: SchemaElement, name: string, isTop: boolean, zone?: Zone): Convert {
  const { type, type_length = 0, converted_type, logical_type, scale } = element;
  const time = timeTypeOf(element);
  if (time?.unit === 'DAYS') return (days) => dateText(Number(days));
  if (time !== undefined) return (value) => instant(value as number | bigint, time, isTop, zone);
  if (/^TIME(_|$)/.test(converted_type ?? logical_type?.type ?? '')) {
    const unit = logical_type?.type === 'TIME' ? logical_type.unit : converted_type?.slice(5);
    return (value) => timeOfDay(BigInt(value as number | bigint), unit as TimeType['unit']);
  }
  if (converted_type === 'DECIMAL' || logical_type?.type === 'DECIMAL') {
    const places = scale ?? (logical_type?.type === 'DECIMAL' ? logical_type.scale : 0);
    return (value) => decimal(value instanceof Uint8Array ? signed(value) : BigInt(value as number), places);
  }
  if (converted_type === 'JSON' || logical_type?.type === 'JSON')
    return (value) => json(value as Uint8Array, name);
  if (converted_type === 'BSON' || logical_type?.type === 'BSON') throw unread(name, 'BSON');
  if (converted_type === 'INTERVAL') return (value) => duration(value as Uint8Array);
  if (/^GEO/.test(logical_type?.type ?? '')) throw unread(name, String(logical_type?.type));
  if (logical_type?.type === 'UUID') return (value) => uuid(value as Uint8Array);
  if (logical_type?.type === 'FLOAT16') return (value) => number(half(value as Uint8Array));
  const isUnsigned =
    /^UINT/.test(converted_type ?? '') || (logical_type?.type === 'INTEGER' && !logical_type.isSigned);
  switch (type) {
    case 'INT64':
      return (value) => {
        const exact = isUnsigned ? BigInt.asUintN(64, value as bigint) : (value as bigint);
        // Below the top, text with the same digits is stored alike.
        return isTop ? integer(exact) : String(exact);
      };
    case 'INT32':
      return isUnsigned ? (value) => (value as number) >>> 0 : (value) => value;
    case 'FLOAT':
      return (value) => number(shortest(value as number));
    case 'DOUBLE':
      return (value) => number(value as number);
    case 'FIXED_LEN_BYTE_ARRAY':
      return (value) => fixedText(value as Uint8Array, type_length, name);
    case 'BYTE_ARRAY':
      return (value) => {
        if (typeof value === 'string') return value;
        throw new RowFault(`has bytes in the column ${name} that are not UTF-8`);
      };
    default:
      return (value) => value;
  }
}

function integer(value: bigint): number | string {
  const short = Number(value);
  return Number.isSafeInteger(short) ? short : String(value);
}

/** Statistics programs write NaN for missing values. */
function number(value: number): number | string | null {
  if (Number.isNaN(value)) return null;
  return Number.isFinite(value) ? value : value > 0 ? 'inf' : '-inf';
}

/** The number with the fewest digits that a single-precision number stands for: 0.1, not 0.10000000149011612. */
function shortest(value: number): number {
  if (Number.isSafeInteger(value) || !Number.isFinite(value)) return value;
  for (const digits of [6, 7, 8]) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short;
  }
  return Number(value.toPrecision(9));
}

function half(bytes: Uint8Array): number {
  const bits = ((bytes[1] ?? 0) << 8) | (bytes[0] ?? 0);
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = (bits & 0x3ff) / 1024;
  if (exponent === 0) return sign * 2 ** -14 * fraction;
  if (exponent === 0x1f) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * 2 ** (exponent - 15) * (1 + fraction);
}

/** A signed integer from its bytes, in big-endian order. */
function signed(bytes: Uint8Array): bigint {
  const hex = Buffer.from(bytes).toString('hex');
  return hex === '' ? 0n : BigInt.asIntN(bytes.length * 8, BigInt(`0x${hex}`));
}

/** A decimal by its digits, without trailing zeros in the fraction; as a number if a double has the same digits. */
function decimal(unscaled: bigint, scale: number): number | string {
  const sign = unscaled < 0n ? '-' : '';
  const digits = String(unscaled < 0n ? -unscaled : unscaled).padStart(scale + 1, '0');
  const whole = scale > 0 ? digits.slice(0, -scale) : digits;
  const fraction = scale > 0 ? digits.slice(-scale).replace(/0+$/, '') : '';
  const text = `${sign}${whole}${fraction === '' ? '' : `.${fraction}`}`;
  const short = Number(text);
  return String(short) === text && (fraction !== '' || Number.isSafeInteger(short)) ? short : text;
}

function dateText(days: number): string {
  const date = new Date(days * 86_400_000);
  if (Number.isNaN(date.getTime())) throw new RowFault('has a date that does not exist');
  return date.toISOString().slice(0, -14);
}

const perMs: Readonly<Record<string, bigint>> = { MILLIS: 1n, MICROS: 1_000n, NANOS: 1_000_000n };

/**
 * A Date, if whole milliseconds and a known zone allow it, or in `zone`, rounded down. Otherwise text with all digits, without a zone if
 * it has none.
 */
function instant(
  value: number | bigint,
  { unit, isLocal }: TimeType,
  isTop: boolean,
  zone?: Zone,
): Date | string {
  const units = perMs[unit] ?? 1n;
  // Rounded down, also before 1970.
  const rest = units === 1n ? 0n : BigInt(value) % units;
  const within = rest < 0n ? rest + units : rest;
  const date = new Date(Number(units === 1n ? value : (BigInt(value) - within) / units));
  if (Number.isNaN(date.getTime())) return date;
  if (isTop && !isLocal && within === 0n) return date;
  if (isLocal && zone !== undefined) return zone === utc ? date : new Date(zone.instantOf(date.getTime()));
  const more = within === 0n ? '' : String(within).padStart(unit === 'MICROS' ? 3 : 6, '0');
  return `${isoOf(date.getTime()).slice(0, -1)}${more}${isLocal ? '' : 'Z'}`;
}

function timeOfDay(value: bigint, unit: TimeType['unit']): string {
  const units = (perMs[unit] ?? 1n) * 1000n;
  const [seconds, within] = [Number(value / units), value % units];
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const fraction =
    within === 0n
      ? ''
      : `.${String(within)
          .padStart(String(units).length - 1, '0')
          .replace(/0+$/, '')}`;
  return `${parts.map((part) => String(part).padStart(2, '0')).join(':')}${fraction}`;
}

/** A duration of months, days and milliseconds, as in ISO 8601. */
function duration(bytes: Uint8Array): string {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [months, days, ms] = [0, 4, 8].map((at) => view.getUint32(at, true));
  return `P${months}M${days}DT${(ms ?? 0) / 1000}S`;
}

function uuid(bytes: Uint8Array): string {
  const hex = Buffer.from(bytes).toString('hex');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

/** JSON in which every long number keeps its digits, since any field may become a property. */
function json(bytes: Uint8Array, name: string): unknown {
  const document = parseDocument(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), 'all');
  if ('code' in document) throw new RowFault(`has something in the column ${name} that is not JSON`);
  return document.value;
}

/** The widths in bytes at which ClickHouse writes integers and addresses without a type. */
const untypedWidths: ReadonlySet<number> = new Set([16, 32]);

/** Bytes without a type: text padded with zeros or, at some widths, anything else. */
function fixedText(bytes: Uint8Array, width: number, name: string): string {
  let end = bytes.length;
  if (!untypedWidths.has(width)) while (end > 0 && bytes[end - 1] === 0) end -= 1;
  const text = textIn(bytes.subarray(0, end));
  // biome-ignore lint/suspicious/noControlCharactersInRegex: no text has them
  if (text instanceof NotText || /[\x00-\x08\x0e-\x1f\x7f]/.test(text))
    throw new RowFault(
      `has ${width} bytes without a type in the column ${name}, which may be anything; write them as a text or a decimal`,
    );
  return text;
}
