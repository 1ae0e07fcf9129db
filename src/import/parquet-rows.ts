// The rows of a Parquet file, group by group.

import {
  type AsyncBuffer,
  type DecodedArray,
  parquetMetadataAsync,
  parquetRead,
  parquetSchema,
} from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import type { Input } from './inputs.js';
import { ImportError } from './options.js';
import { type Convert, converterOf, parsers, timeTypeOf, withoutTypes } from './parquet-values.js';
import { assertColumns, plain, type ReadOptions, type Row, rowsPerChunk, unreadable } from './row.js';
import { type OpenSource, openSource } from './source.js';
import { zoneWanted } from './times.js';
import { RowFault, setField } from './values.js';
import type { Zone } from './zones.js';

/** How many rows are decoded at once. Row groups are seldom larger. */
const decodedRowsMax = 300_000;

export async function* readParquet(input: Input, options: ReadOptions): AsyncGenerator<Row[]> {
  if (input.compression !== 'none')
    throw new ImportError(`${input.name}: Parquet is compressed within; unpack it`);
  const { after, timeColumn, zone, onShare } = options;
  let opened: OpenSource | undefined;
  try {
    opened = await openSource(input);
    const file = bufferOf(opened, input.bytes);
    const typed = await parquetMetadataAsync(file);
    const root = parquetSchema(typed);
    const all = root.children;
    assertColumns(
      input,
      options,
      all.map(({ element }) => element.name),
    );
    const nodes = all.filter(({ element }) => options.takesRest || isWanted(element.name, options.columns));
    const time = nodes.find(({ element }) => element.name === timeColumn)?.element;
    const isLocal = time !== undefined && timeTypeOf(time)?.isLocal === true;
    if (isLocal && zone === undefined)
      throw new ImportError(
        `${input.name}: the times of the column ${timeColumn} name no zone; ${zoneWanted}`,
      );
    const convert = new Map(
      nodes.map((node) => {
        // Of a list, the times stay text.
        const isTime = node.element === time && time.repetition_type !== 'REPEATED';
        return [node.element.name, converter(input, node, isTime && isLocal ? zone : undefined)];
      }),
    );
    const wanted = options.takesRest ? {} : { columns: nodes.map(({ element }) => element.name) };
    const metadata = { ...typed, schema: withoutTypes(root) };
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
      await parquetRead({ ...wanted, file, metadata, rowStart, rowEnd, compressors, parsers, onChunk });
      const read = joinColumns(parts, rowStart, rowEnd).map(({ name, values }) => ({
        name,
        values,
        convert: convert.get(name) as Convert,
      }));
      for (let from = rowStart; from < rowEnd; from += rowsPerChunk) {
        const rows: Row[] = [];
        for (let at = from; at < Math.min(rowEnd, from + rowsPerChunk); at++) {
          const value: Record<string, unknown> = {};
          let fault: string | undefined;
          for (const { name, values, convert: converted } of read) {
            try {
              setField(value, name, converted(values[at - rowStart]));
            } catch (error) {
              if (!(error instanceof RowFault)) throw error;
              fault ??= error.message;
            }
          }
          const place = at + 1;
          if (fault === undefined) rows.push({ place, value, ...plain });
          else rows.push({ place, value: undefined, ...plain, fault, text: JSON.stringify(value) });
        }
        yield rows;
        onShare((from + rows.length) / end);
      }
    }
  } catch (error) {
    throw unreadable(input, error);
  } finally {
    await opened?.close();
  }
}

function bufferOf({ read }: OpenSource, bytes: number): AsyncBuffer {
  return {
    byteLength: bytes,
    slice: async (start, end = bytes) => (await read(start, Math.min(end, bytes))).buffer as ArrayBuffer,
  };
}

function isWanted(name: string, columns: readonly string[]): boolean {
  return columns.some((column) => column === name || column.startsWith(`${name}.`));
}

function converter({ name }: Input, node: Parameters<typeof converterOf>[0], zone: Zone | undefined) {
  try {
    return converterOf(node, node.element.name, true, zone);
  } catch (error) {
    throw error instanceof ImportError ? new ImportError(`${name}: ${error.message}`) : error;
  }
}

/** Some values of a column, from a certain row of the file on. */
type ColumnPart = {
  readonly columnName: string;
  readonly columnData: DecodedArray;
  readonly rowStart: number;
};

/**
 * The values of each column for these rows. Rows are built from them chunk by chunk: with a whole row group as objects, the garbage
 * collector took a fifth of an import.
 */
function joinColumns(parts: readonly ColumnPart[], rowStart: number, rowEnd: number) {
  const columns = new Map<string, unknown[]>();
  for (const { columnName, columnData, rowStart: first } of parts) {
    const values = columns.get(columnName) ?? new Array<unknown>(rowEnd - rowStart);
    columns.set(columnName, values);
    // A part may begin before the wanted rows and end after them.
    const to = Math.min(rowEnd - first, columnData.length);
    for (let at = Math.max(0, rowStart - first); at < to; at++)
      values[first + at - rowStart] = columnData[at];
  }
  return Array.from(columns, ([name, values]) => ({ name, values }));
}
