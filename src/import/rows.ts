// The rows of a file, in chunks, from a place on. A place is a row's number in its file. It is the same whenever the file is read, which
// keys and the state of an import rely on.

import { parseDocument } from '../parsing/document.js';
import { contentOf } from './content.js';
import { readCsv } from './csv-rows.js';
import { type Input, textIn } from './inputs.js';
import { splitLines, splitValues } from './json-elements.js';
import { readParquet } from './parquet-rows.js';
import { chunkBytesMax, plain, type ReadOptions, type Row, rowsPerChunk, unreadable } from './row.js';

/** Reads a file. Throws ImportError if the file is not in its format. */
export function readRows(input: Input, options: ReadOptions): AsyncGenerator<Row[]> {
  switch (input.format) {
    case 'ndjson':
      return readJson(input, splitLines, options);
    case 'json':
      return readJson(input, splitValues, options);
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
    // A line that is not UTF-8 is noticed when it is parsed, so only that row is refused.
    const content = input.encoding === 'utf-8' ? contentOf(input, onShare) : textIn(input, onShare);
    for await (const { place, bytes } of split(content)) {
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
