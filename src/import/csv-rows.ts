// The rows of a CSV file. It must be UTF-8, or UTF-16 with a byte order mark: in another encoding several names would be the
// same. A quote within a field is a character like others; one at its start that nothing closes would swallow all rows after
// it, so it ends the import.

import { type Options, parse as parseCsv } from 'csv-parse';
import { imports } from '../contract/limits.js';
import { contentOf } from './content.js';
import type { Input } from './inputs.js';
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

type CsvRecord = {
  readonly record: Record<string, string>;
  readonly info: { readonly lines: number };
  readonly raw: string;
};
type CsvFault = Error & {
  readonly code?: string;
  readonly lines?: number;
  readonly record?: readonly string[];
};

export async function* readCsv(input: Input, options: ReadOptions): AsyncGenerator<Row[]> {
  try {
    const content = decoded(input, contentOf(input, options.onShare));
    const head = await headOf(content);
    const isTabs = /\.tsv(\.|$)/i.test(input.name);
    const reader = createReader(input, options, {
      delimiter: isTabs ? '\t' : delimiterOf(head.toString('utf8')),
      // A lone CR ends a line where no LF does.
      record_delimiter: head.includes('\r') && !head.includes('\n') ? ['\r'] : ['\r\n', '\n'],
    });
    let chunkBytes = 0;
    for (let bytes: Buffer | undefined = head; bytes !== undefined; bytes = (await content.next()).value) {
      await reader.write(bytes);
      chunkBytes += bytes.length;
      while (reader.rows.length >= rowsPerChunk) yield reader.rows.splice(0, rowsPerChunk);
      if (chunkBytes < chunkBytesMax || reader.rows.length === 0) continue;
      yield reader.rows.splice(0);
      chunkBytes = 0;
    }
    await reader.end();
    while (reader.rows.length > 0) yield reader.rows.splice(0, rowsPerChunk);
  } catch (error) {
    throw unreadable(input, error);
  }
}

/** `rows`: the rows of what was written so far, in their order. The reader removes the ones that it takes. */
function createReader(
  input: Input,
  { after, ...options }: ReadOptions,
  delimiters: Pick<Options, 'delimiter' | 'record_delimiter'>,
) {
  const rows: Row[] = [];
  let header: readonly string[] = [];
  /** What the columns without a name are called here, if there are several. */
  let unnamed: readonly string[] = [];
  /** The last line of the last row. */
  let lastLine = 0;
  const add = (row: Row) => {
    lastLine = row.place;
    if (row.place > after) rows.push(row);
  };
  const settings: Options = {
    bom: true,
    ...delimiters,
    info: true,
    raw: true,
    relax_quotes: true,
    max_record_size: imports.rowCharactersMax,
    skip_empty_lines: true,
    columns: (names: string[]) => {
      header = names;
      assertColumns(input, options, names);
      if (names.filter((name) => name === '').length < 2) return names;
      const told = names.map((name, at) => (name === '' ? `\0${at}` : name));
      unnamed = told.filter((name) => name.startsWith('\0'));
      return told;
    },
    skip_records_with_error: true,
    on_skip: (error, raw) => {
      const { code, lines: place = 0, record } = (error ?? {}) as CsvFault;
      if (code !== 'CSV_RECORD_INCONSISTENT_COLUMNS') throw faultOf(input, code, lastLine + 1) ?? error;
      const fault = `has ${record?.length} fields, but the header has ${header.length}`;
      add({ place, value: undefined, ...plain, fault, text: (raw ?? '').replace(lineEnds, '') });
    },
    // Nothing is left for the stream, whose reader would not see rows that are skipped.
    on_record: (taken) => {
      const { record, info, raw } = taken as unknown as CsvRecord;
      const isNamed = unnamed.every((name) => record[name] === '') || !options.takesRest;
      for (const name of unnamed) delete record[name];
      const fault = markedRow.test(raw)
        ? 'begins with a byte order mark, as where files were joined'
        : isNamed
          ? undefined
          : 'has a value in a column without a name, of which there are several';
      if (fault === undefined) add({ place: info.lines, value: record, ...plain });
      else add({ place: info.lines, value: undefined, ...plain, fault, text: raw.replace(lineEnds, '') });
      return null;
    },
  };
  const parser = parseCsv(settings);
  parser.resume();
  let failed: Error | undefined;
  parser.on('error', (error) => {
    failed ??= error;
  });
  const settled = (begin: (done: (error?: Error | null) => void) => void) =>
    new Promise<void>((resolve, reject) => {
      begin((error) => {
        const fault = failed ?? error;
        if (fault) reject(fault);
        else resolve();
      });
    });
  return {
    rows,
    write: (bytes: Buffer) => settled((done) => void parser.write(bytes, done)),
    end: () =>
      settled((done) => {
        parser.once('error', done);
        parser.once('end', done);
        parser.end();
      }),
  };
}

/** Blank lines before a row are a part of its text. */
const lineEnds = /^[\r\n]+|[\r\n]+$/g;
/** Where files were joined. */
const markedRow = /^[\r\n]*\ufeff/;

function faultOf({ name }: Input, code: string | undefined, line: number): ImportError | undefined {
  if (code === 'CSV_QUOTE_NOT_CLOSED')
    return new ImportError(`${name}: a quote that opens in the row at line ${line} is never closed`);
  if (code === 'CSV_MAX_RECORD_SIZE')
    return new ImportError(
      `${name}: the row at line ${line} has more than 1 MiB; perhaps a quote in it is never closed`,
    );
  return undefined;
}

/** The content as UTF-8. Throws ImportError where it is no text. */
async function* decoded({ name }: Input, content: AsyncIterable<Buffer>): AsyncGenerator<Buffer, undefined> {
  let decoder: InstanceType<typeof TextDecoder> | undefined;
  let isWide = false;
  let bytes = 0;
  const decode = (chunk: Buffer, stream: boolean) => {
    if (decoder === undefined) {
      isWide = chunk[0] === 0xff && chunk[1] === 0xfe;
      decoder = new TextDecoder(isWide ? 'utf-16le' : 'utf-8', { fatal: true });
    }
    try {
      const text = decoder.decode(chunk, { stream });
      bytes += chunk.length;
      return isWide ? Buffer.from(text) : chunk;
    } catch {
      throw new ImportError(
        `${name}: it is not UTF-8 after its first ${bytes} bytes; convert it first, for example by iconv -f latin1 -t utf-8`,
      );
    }
  };
  // The mark has two bytes, which may come one by one.
  let head: Buffer = Buffer.alloc(0);
  for await (const chunk of content) {
    const whole = head.length === 0 ? chunk : Buffer.concat([head, chunk]);
    head = decoder === undefined && whole.length < 2 ? whole : Buffer.alloc(0);
    if (head.length === 0) yield decode(whole, true);
  }
  yield decode(head, false);
  return undefined;
}

/** The content up to the end of its first line at least, if that is not too far away. */
async function headOf(content: AsyncGenerator<Buffer, undefined>): Promise<Buffer> {
  let head: Buffer = Buffer.alloc(0);
  while (head.length < imports.headerBytesMax && !/[^\r\n][\r\n]/.test(head.toString('latin1'))) {
    const { value } = await content.next();
    if (value === undefined) break;
    head = Buffer.concat([head, value]);
  }
  return head;
}

/** The delimiter of the header, which all rows have: any other may be part of a text. */
function delimiterOf(head: string): string {
  const found: Record<string, number> = { ',': 0, ';': 0, '\t': 0 };
  let isQuoted = false;
  for (const unit of head.replace(/^[\ufeff\r\n]+/, '')) {
    if (unit === '"') isQuoted = !isQuoted;
    else if (isQuoted) continue;
    else if (unit === '\n' || unit === '\r') break;
    else if (found[unit] !== undefined) found[unit] += 1;
  }
  return Object.keys(found).reduce((best, one) => ((found[one] ?? 0) > (found[best] ?? 0) ? one : best));
}
