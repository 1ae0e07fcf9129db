// Owns what a statement's text becomes so that its data comes from a file, its result goes to a pipe, and the
// settings of an INSERT are part of it: a setting that stayed in a session, a deduplication token above all,
// would silently drop the rows of later INSERTs.

import { ClickHouseException } from './errors.js';
import type { InsertText, SelectText } from './sql-text.js';
import { quote } from './sql-tokens.js';

/** Puts INTO OUTFILE where it belongs: before FORMAT, or at the end together with it. */
export function withOutfile(sql: string, text: SelectText, pipe: string, format: string): string {
  const target = ` INTO OUTFILE ${quote(pipe)} APPEND `;
  if (text.format === undefined) return `${sql.slice(0, text.end)}${target}FORMAT ${format}`;
  return `${sql.slice(0, text.format.start)}${target}${sql.slice(text.format.start, text.end)}`;
}

/** Lets the INSERT read its data from the file. Its own settings win over the request's. */
export function withInfile(
  sql: string,
  text: InsertText,
  dataPath: string | undefined,
  settings: ReadonlyMap<string, string>,
): string {
  const own = text.settings === undefined ? [] : [sql.slice(text.settings.start, text.settings.end)];
  const all = [...[...settings].map(([name, value]) => `${name} = ${quote(value)}`), ...own];
  const clause = all.length === 0 ? '' : ` SETTINGS ${all.join(', ')}`;
  const target = sql.slice(0, text.targetEnd);
  const { source } = text;
  if (source.kind === 'select') return `${target}${clause} ${sql.slice(source.start, source.end)}`;
  if (dataPath === undefined || source.kind === 'open') {
    throw ClickHouseException.of(108, 'NO_DATA_TO_INSERT', 'No data to insert');
  }
  if (source.kind === 'data') {
    return `${target} FROM INFILE ${quote(dataPath)} COMPRESSION 'none'${clause} FORMAT ${source.format}`;
  }
  // input() would read the process's standard input, and find nothing there.
  const structure = sql.slice(source.open + 1, source.close);
  const file = `file(${quote(dataPath)}, ${quote(source.format)}, ${structure}, 'none')`;
  const before = sql.slice(source.start, source.callStart);
  const after = sql.slice(source.close + 1, source.formatStart);
  return `${target}${clause} ${before}${file}${after}`;
}

/** They come too late inside a statement: the session has to have them. */
const parserSettings = new Set([
  'max_query_size',
  'max_parser_depth',
  'max_parser_backtracks',
  'implicit_select',
]);

/** Divides an INSERT's settings into those `before` and those `within` the statement. */
export function splitSettings(settings: ReadonlyMap<string, string>) {
  const entries = [...settings];
  return {
    before: new Map(entries.filter(([name]) => parserSettings.has(name))),
    within: new Map(entries.filter(([name]) => !parserSettings.has(name))),
  };
}
