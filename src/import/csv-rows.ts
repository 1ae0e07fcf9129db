// The rows of a CSV file, whose text is decoded before it is parsed. A quote within a field is an ordinary character. A quote at the start
// of a field that is never closed would swallow all later rows, so it ends the import.

import { type Options, parse as parseCsv } from 'csv-parse';
import { imports } from '../contract/limits.js';
import { declaredSeparator, mostFrequent, separatorsIn } from '../parsing/csv/separator.js';
import { type Input, textIn } from './inputs.js';
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
import { setField } from './values.js';

type CsvRecord = { readonly record: readonly string[]; readonly raw: string };
type CsvFault = Error & {
  readonly code?: string;
  readonly lines?: number;
  readonly record?: readonly string[];
};

export async function* readCsv(input: Input, options: ReadOptions): AsyncGenerator<Row[]> {
  try {
    const content = textIn(input, options.onShare);
    const head = await headOf(content);
    const marked = head.toString('utf8');
    const mark = marked.startsWith('\ufeff') ? 1 : 0;
    // A first line by which Excel declares the separator is not a row.
    const declared = declaredSeparator(marked.slice(mark));
    const start = declared === undefined ? 0 : mark + declared.end;
    const text = marked.slice(Math.max(mark, start));
    // Bytes are cut off, not text: the head may end within a character.
    const begin = head.subarray(Buffer.byteLength(marked.slice(0, start)));
    const isTabs = /\.tsv(\.|$)/i.test(input.name);
    const delimiter = declared?.separator ?? (isTabs ? '\t' : (mostFrequent(separatorsIn(text)) ?? ','));
    const unquoted = withoutQuoted(text, delimiter, options.isMysql === true);
    const reader = createReader(input, declared === undefined ? 0 : 1, options, {
      delimiter,
      // A CR alone ends a line only if there is no LF outside of quotes.
      record_delimiter: unquoted.includes('\r') && !unquoted.includes('\n') ? ['\r'] : ['\r\n', '\n'],
    });
    let chunkBytes = 0;
    for (let bytes: Buffer | undefined = begin; bytes !== undefined; bytes = (await content.next()).value) {
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

/** `rows`: receives the rows of what was written, in order. The caller removes those that it takes. */
function createReader(
  input: Input,
  linesBefore: number,
  { after, ...options }: ReadOptions,
  delimiters: Pick<Options, 'delimiter' | 'record_delimiter'>,
) {
  const rows: Row[] = [];
  const missing = options.nullText ?? (options.isMysql ? '\\N' : undefined);
  let header: readonly string[] | undefined;
  /** Whether several columns have no name. */
  let areSomeUnnamed = false;
  /** The line on which the previous row, or the header, ended. */
  let lastLine = linesBefore;
  const add = (row: Row) => {
    lastLine = row.place;
    if (row.place > after) rows.push(row);
  };
  const settings: Options = {
    bom: true,
    ...delimiters,
    raw: true,
    ...(options.isMysql ? mysql : {}),
    relax_quotes: true,
    max_record_size: imports.rowCharactersMax,
    skip_empty_lines: true,
    skip_records_with_error: true,
    on_skip: (error, raw) => {
      const { code, lines = 0, record } = (error ?? {}) as CsvFault;
      const place = lines + linesBefore;
      if (code !== 'CSV_RECORD_INCONSISTENT_FIELDS_LENGTH') throw faultOf(input, code, lastLine + 1) ?? error;
      const fault = `has ${record?.length} fields, but the header has ${header?.length}`;
      add({ place, value: undefined, ...plain, fault, text: (raw ?? '').replace(lineEnds, '') });
    },
  };
  const take = ({ record: cells, raw }: CsvRecord) => {
    if (header === undefined) {
      header = cells;
      lastLine = parser.info.lines + linesBefore;
      areSomeUnnamed = cells.filter((name) => name === '').length > 1;
      assertColumns(input, options, cells);
      return;
    }
    const record: Record<string, string> = {};
    let isNamed = true;
    for (const [at, name] of header.entries()) {
      const cell = cells[at] as string;
      if (name !== '' || !areSomeUnnamed) setField(record, name, cell === missing ? '' : cell);
      else if (cell !== '' && options.takesRest) isNamed = false;
    }
    const fault = markedRow.test(raw)
      ? 'begins with a byte order mark, as where files were joined'
      : isNamed
        ? raw.includes('\\')
          ? databaseFault(record, options.isMysql === true)
          : undefined
        : 'has a value in a column without a name, of which there are several';
    const place = parser.info.lines + linesBefore;
    if (fault === undefined) add({ place, value: record, ...plain });
    else add({ place, value: undefined, ...plain, fault, text: raw.replace(lineEnds, '') });
  };
  const parser = parseCsv(settings);
  let failed: Error | undefined;
  parser.on('error', (error) => {
    failed ??= error;
  });
  // Takes each row at once and leaves none to the stream, whose reader would not notice rows that are skipped. The library's own function
  // for that describes each row, which takes longer than to parse it.
  parser.push = (taken: CsvRecord | null) => {
    try {
      if (taken !== null && failed === undefined) take(taken);
    } catch (error) {
      failed = error as Error;
    }
    return true;
  };
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
        parser.once('finish', done);
        parser.end();
      }),
  };
}

/** The dialect of MySQL: a backslash before quotes, backslashes and line ends. NULL is `\N` without quotes. */
const mysql: Options = {
  escape: '\\',
  cast: (value, { quoting }) => (quoting || value === '\\N' ? value : value.replace(/\\(.)/gs, '$1')),
};

/** Why a row is not plain CSV. Read as plain CSV, a NULL would be text and, in a column of users, a name that many share. */
function databaseFault(record: Readonly<Record<string, string>>, isMysql: boolean): string | undefined {
  for (const column of Object.keys(record)) {
    const cell = record[column];
    if (cell === '\\N') return `has \\N in the column ${column}, as databases write NULL; add --null '\\N'`;
    if (!isMysql && cell?.startsWith('"') && cell.includes('\\"'))
      return `has \\" in the column ${column}, as MySQL writes a quote; add --csv-dialect mysql`;
  }
  return undefined;
}

/** The text of a row includes the blank lines before it. */
const lineEnds = /^[\r\n]+|[\r\n]+$/g;
/** A byte order mark before a row, left where files were joined. */
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

/** The text without its quoted cells. A quote inside of an unquoted cell opens none. */
function withoutQuoted(text: string, delimiter: string, isMysql: boolean): string {
  const begin = `(?<=^|[\\r\\n]|${delimiter.replace(/\W/, '\\$&')})`;
  const content = isMysql ? '[^"\\\\]*(?:(?:\\\\.|"")[^"\\\\]*)*' : '[^"]*(?:""[^"]*)*';
  return text.replace(new RegExp(`${begin}"${content}(?:"|$)`, 'gs'), '');
}

/** The beginning of the content: at least its first line, unless that is too long. It never ends within a CRLF. */
async function headOf(content: AsyncGenerator<Buffer, undefined>): Promise<Buffer> {
  let head: Buffer = Buffer.alloc(0);
  while (
    head.at(-1) === 0x0d ||
    (head.length < imports.headerBytesMax && !/[^\r\n][\r\n]/.test(head.toString('latin1')))
  ) {
    const { value } = await content.next();
    if (value === undefined) break;
    head = Buffer.concat([head, value]);
  }
  return head;
}
