// An export as a zip archive for the person whom it is about: pages to read and, beside each, its records as CSV and as lines of JSON. A
// page has few enough records for a browser to show it at once, and only one page's records are in memory. A zip archive ends with its list
// of files, so an incomplete one cannot be opened.

import { Readable } from 'node:stream';
import type { Lines } from '../../clickhouse/answers.js';
import { userExports } from '../../contract/limits.js';
import { ZipFile } from '../../packages/yazl.js';
import { csvOf } from '../../parsing/csv/write.js';
import { exportPageStepCharacters } from '../../tuning.js';
import { type ExportedLine, pageOf } from './page.js';
import type { Times } from './times.js';

type File = { readonly name: string; readonly pieces: Iterable<Buffer> };

/** How times and environments are shown. `environments`: their names by app_id. */
export type ReadingOf = { readonly times: Times; readonly environments: ReadonlyMap<string, string> };

/**
 * Yields the archive of all lines of an export, the last line included. If `lines` throws, this throws the same before the archive is
 * complete.
 */
export async function* archiveOf(lines: AsyncIterable<Lines>, reading: ReadingOf): AsyncGenerator<Buffer> {
  const zip = new ZipFile();
  const output = zip.outputStream as Readable;
  const fill = async () => {
    for await (const file of filesOf(lines, reading)) await add(zip, file);
    zip.end();
  };
  fill().catch((error) => output.destroy(error as Error));
  for await (const bytes of output) yield bytes as Buffer;
}

/** Settles when the archive's reader has received nearly all of the file. */
function add(zip: ZipFile, { name, pieces }: File): Promise<void> {
  // The archive keeps the callback that starts a file until its end, so the callback must not hold the file's contents.
  let unread: Iterable<Buffer> | undefined = pieces;
  return new Promise((settle, reject) => {
    // The fastest compression level, as for an export as lines.
    zip.addReadStreamLazy(name, { compressionLevel: 1 }, (take) => {
      const stream = Readable.from(unread as Iterable<Buffer>, { objectMode: false });
      unread = undefined;
      take(null, stream.once('end', settle).once('error', reject));
    });
  });
}

/** A text in pieces, each made within a few milliseconds, so that the process can do other work in between. */
function* piecesOf(parts: Iterable<string>): Generator<Buffer> {
  let piece = '';
  for (const part of parts) {
    piece += part;
    if (piece.length < exportPageStepCharacters) continue;
    yield Buffer.from(piece);
    piece = '';
  }
  yield Buffer.from(piece);
}

async function* filesOf(lines: AsyncIterable<Lines>, reading: ReadingOf): AsyncGenerator<File> {
  const at = new Date();
  const nameOf = (page: number, ending: string) => `data-${page}.${ending}`;
  let number = 0;
  for await (const { texts, isLast } of groupsOf(lines)) {
    number += 1;
    const links = {
      previous: number > 1 ? nameOf(number - 1, 'html') : undefined,
      next: isLast ? undefined : nameOf(number + 1, 'html'),
      table: nameOf(number, 'csv'),
      lines: nameOf(number, 'ndjson'),
    };
    const records = texts.map((text) => JSON.parse(text) as ExportedLine);
    const { times, environments } = reading;
    const page = pageOf(records, { at, number, links, times, environments });
    yield { name: nameOf(number, 'html'), pieces: piecesOf(page) };
    yield { name: links.table, pieces: piecesOf(sheetOf(records, times, environments)) };
    yield { name: nameOf(number, 'ndjson'), pieces: piecesOf(texts.map((text) => `${text}\n`)) };
  }
}

/** The lines of each page. */
async function* groupsOf(lines: AsyncIterable<Lines>): AsyncGenerator<{ texts: string[]; isLast: boolean }> {
  let texts: string[] = [];
  let length = 0;
  for await (const { bytes } of lines) {
    for (const text of bytes.toString('utf8').split('\n')) {
      if (text === '') continue;
      if (texts.length >= userExports.pageRecordsMax || length >= userExports.pageCharactersMax) {
        yield { texts, isLast: false };
        [texts, length] = [[], 0];
      }
      texts.push(text);
      length += text.length;
    }
  }
  yield { texts, isLast: true };
}

const plain = ['time', 'event', 'identity', 'user_id'];
const rest = 'other properties';

/** The byte order mark, by which spreadsheets recognise the encoding. */
const mark = '\uFEFF';

/** The lines of a page as CSV: one row per line, and one column per property as long as a sheet has room for them. */
function* sheetOf(
  lines: readonly ExportedLine[],
  times: Times,
  environments: ReadonlyMap<string, string>,
): Generator<string> {
  const records = lines.filter(({ kind }) => kind !== 'end');
  const fields = new Set(plain);
  const properties = new Set<string>();
  for (const { kind: _, app_id: __, properties: own, ...others } of records) {
    for (const name of Object.keys(others)) fields.add(name);
    for (const name of Object.keys(propertiesOf(own)))
      if (properties.size < userExports.propertyColumnsMax) properties.add(name);
  }
  const head = ['environment', 'kind', ...fields, ...[...properties].map((name) => `property ${name}`), rest];
  yield `${mark}${csvOf([head])}\r\n`;
  for (const { kind, app_id: appId, properties: own, ...others } of records) {
    const all = propertiesOf(own);
    const left = Object.entries(all).filter(([name]) => !properties.has(name));
    const row = [
      environments.get(String(appId)) ?? String(appId ?? ''),
      kind,
      ...[...fields].map((name) => {
        const text = textOf((others as Readonly<Record<string, unknown>>)[name]);
        return name === 'time' || name.endsWith('_at') ? times.shown(text) : text;
      }),
      // Properties keep the names under which they were sent.
      ...[...properties].map((name) => textOf(Object.hasOwn(all, name) ? all[name] : undefined)),
      left.length === 0 ? '' : JSON.stringify(Object.fromEntries(left)),
    ];
    yield `${csvOf([row])}\r\n`;
  }
}

function propertiesOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return value;
  return Array.isArray(value) && value.every((each) => typeof each === 'string')
    ? value.join(', ')
    : JSON.stringify(value);
}
