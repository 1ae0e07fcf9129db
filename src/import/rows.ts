// The rows of a file, in chunks, from a place on. A place is a row's number in its file; it is the same whenever the file is
// read, so keys and the state of an import rest on it.

import {
  asyncBufferFromFile,
  type DecodedArray,
  parquetMetadataAsync,
  parquetRead,
  parquetSchema,
} from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { parseDocument } from '../ingest/document.js';
import { contentOf } from './content.js';
import { readCsv } from './csv-rows.js';
import type { Input } from './inputs.js';
import { splitArray, splitLines } from './json-elements.js';
import { ImportError } from './options.js';
import {
  assertColumns,
  chunkBytesMax,
  plain,
  type ReadOptions,
  type Row,
  rowsPerChunk,
  unreadable,
} from './row.js';
import { zoneWanted } from './times.js';
import { utc, type Zone } from './zones.js';

/** Reads a file. Throws ImportError if it is not of its format. */
export function readRows(input: Input, options: ReadOptions): AsyncGenerator<Row[]> {
  switch (input.format) {
    case 'ndjson':
      return readJson(input, splitLines, options);
    case 'json':
      return readJson(input, splitArray, options);
    case 'csv':
      return readCsv(input, options);
    case 'parquet':
      return readParquet(input, options);
  }
}

async function* readJson(
  input: Input,
  split: typeof splitLines,
  { after, onShare }: ReadOptions,
): AsyncGenerator<Row[]> {
  let rows: Row[] = [];
  let chunkBytes = 0;
  try {
    for await (const { place, bytes } of split(contentOf(input, onShare))) {
      if (place <= after) continue;
      rows.push(jsonRow(place, bytes));
      chunkBytes += bytes.length;
      if (rows.length < rowsPerChunk && chunkBytes < chunkBytesMax) continue;
      yield rows;
      rows = [];
      chunkBytes = 0;
    }
  } catch (error) {
    throw unreadable(input, error);
  }
  if (rows.length > 0) yield rows;
}

function jsonRow(place: number, bytes: Buffer): Row {
  // Any field may become a property, a key or a user, so every long number keeps its digits.
  const document = parseDocument(bytes, 'all');
  const broken = (fault: string): Row => ({
    place,
    value: undefined,
    ...plain,
    fault,
    text: bytes.toString('utf8'),
  });
  if ('code' in document) return broken('is not JSON');
  const { value, surrogates, longNumerals } = document;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return broken('is not an object');
  return { place, value: value as Record<string, unknown>, surrogates, longNumerals };
}

/** Rows that are decoded at once; a group of rows of the file is seldom larger. */
const decodedRowsMax = 300_000;

async function* readParquet(input: Input, options: ReadOptions): AsyncGenerator<Row[]> {
  if (input.compression !== 'none')
    throw new ImportError(`${input.name}: Parquet is compressed within; unpack it`);
  const { after, timeColumn, zone, onShare } = options;
  try {
    const file = await asyncBufferFromFile(input.path);
    const metadata = await parquetMetadataAsync(file);
    const fields = parquetSchema(metadata).children.map(({ element }) => element);
    assertColumns(
      input,
      options,
      fields.map(({ name }) => name),
    );
    const time = fields.find(({ name }) => name === timeColumn)?.logical_type;
    const isLocal = time?.type === 'TIMESTAMP' && !time.isAdjustedToUTC;
    if (isLocal && zone === undefined)
      throw new ImportError(
        `${input.name}: the times of the column ${timeColumn} name no zone; ${zoneWanted}`,
      );
    const ends: number[] = [];
    let end = 0;
    for (const { num_rows } of metadata.row_groups) {
      const groupEnd = end + Number(num_rows);
      while (end < groupEnd) {
        end = Math.min(groupEnd, end + decodedRowsMax);
        ends.push(end);
      }
    }
    let start = 0;
    for (const rowEnd of ends) {
      const rowStart = Math.max(start, after);
      start = rowEnd;
      if (rowStart >= rowEnd) continue;
      const parts: ColumnPart[] = [];
      const onChunk = (part: ColumnPart) => void parts.push(part);
      await parquetRead({ file, metadata, rowStart, rowEnd, compressors, onChunk });
      const read = joinColumns(parts, rowStart, rowEnd);
      for (let from = rowStart; from < rowEnd; from += rowsPerChunk) {
        const rows: Row[] = [];
        for (let at = from; at < Math.min(rowEnd, from + rowsPerChunk); at++) {
          const value: Record<string, unknown> = {};
          for (const { name, values } of read) {
            const field = values[at - rowStart];
            const isSimple = typeof field === 'string' || typeof field === 'number';
            const localZone = isLocal && name === timeColumn ? zone : undefined;
            setField(value, name, isSimple ? field : simplified(field, localZone));
          }
          rows.push({ place: at + 1, value, ...plain });
        }
        yield rows;
        onShare((from + rows.length) / end);
      }
    }
  } catch (error) {
    throw unreadable(input, error);
  }
}

/** Some values of a column, from this row of the file on. */
type ColumnPart = {
  readonly columnName: string;
  readonly columnData: DecodedArray;
  readonly rowStart: number;
};

/**
 * The values of each column for these rows. Rows are made of them chunk by chunk: a whole group of rows as objects cost the
 * garbage collector a fifth of an import.
 */
function joinColumns(parts: readonly ColumnPart[], rowStart: number, rowEnd: number) {
  const columns = new Map<string, unknown[]>();
  for (const { columnName, columnData, rowStart: first } of parts) {
    const values = columns.get(columnName) ?? new Array<unknown>(rowEnd - rowStart);
    columns.set(columnName, values);
    // A part may begin before the rows that are wanted, and end after them.
    const to = Math.min(rowEnd - first, columnData.length);
    for (let at = Math.max(0, rowStart - first); at < to; at++)
      values[first + at - rowStart] = columnData[at];
  }
  return Array.from(columns, ([name, values]) => ({ name, values }));
}

/** Parquet's values besides texts and numbers, in the form of JSON. Dates stay dates; local ones are converted from their zone. */
function simplified(field: unknown, zone: Zone | undefined): unknown {
  if (typeof field === 'bigint') {
    const number = Number(field);
    return Number.isSafeInteger(number) ? number : String(field);
  }
  if (field instanceof Date) {
    const isMoved = zone !== undefined && zone !== utc && !Number.isNaN(field.getTime());
    return isMoved ? new Date(zone.instantOf(field.getTime())) : field;
  }
  return typeof field === 'object' && field !== null
    ? JSON.parse(JSON.stringify(field, (_, inner) => (typeof inner === 'bigint' ? String(inner) : inner)))
    : field;
}

/** Gives a row a field. A column may have the name of what every object has. */
export function setField(fields: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== '__proto__') fields[name] = value;
  else Object.defineProperty(fields, name, { value, enumerable: true, writable: true, configurable: true });
}
