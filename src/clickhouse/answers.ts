// Reads ClickHouse's answers, and proves that each is complete: an engine whose disk is full may answer 200 and send nothing, or only
// the beginning, in correct HTTP. "No rows" decides much (a deletion is complete, a segment is not stored, there is no deployment yet),
// so every answer ends with something that ClickHouse writes last, after the statement has succeeded:
//
// - rows are a JSON array, one row per line, which ends with its bracket;
// - bytes end with a mark, random for each answer, so that no data contains it.
//
// Nothing else in the service reads answers, except for the copy of a moved shard (`move-rows.ts`), whose rows are compared afterwards,
// and the operator's command (`admin/clickhouse.ts`).

import { randomBytes } from 'node:crypto';
import type { Readable } from 'node:stream';
import { type ClickHouseClient, extractErrorAtTheEndOfChunk } from '../packages/clickhouse.js';

/** A connection, as far as reading needs it. */
export type Answering = Pick<ClickHouseClient, 'exec'>;

/** A reading statement without a FORMAT clause. `abort_signal` also ends the reading of its answer. */
export type Question = Parameters<ClickHouseClient['command']>[0] & { readonly values?: Readable };

/** ClickHouse sent only the beginning of an answer, or nothing. It must not decide anything; asking again may help. */
export class AnswerCutOff extends Error {
  constructor() {
    super('ClickHouse sent only a part of its answer; its disk may be full');
  }
}

/** Settles with all rows. Rejects with AnswerCutOff, or with ClickHouse's error. */
export async function readRows<Row>(client: Answering, question: Question): Promise<Row[]> {
  const answer = await collect(piecesOf(client, asRows(question)));
  try {
    return JSON.parse(answer.toString('utf8')) as Row[];
  } catch {
    throw new AnswerCutOff();
  }
}

/** Settles with the row of a statement that has exactly one, such as one that counts. Otherwise as `readRows`. */
export async function readRow<Row>(client: Answering, question: Question): Promise<Row> {
  const [row, ...others] = await readRows<Row>(client, question);
  if (row === undefined || others.length > 0) throw new Error('a statement did not return exactly one row');
  return row;
}

/**
 * Settles with the rows that ClickHouse finds within so many seconds. When the time is up, it ends the answer without its bracket, so one
 * that is cut off looks the same: these rows may be shown, and must decide nothing. Otherwise as `readRows`.
 */
export async function readRowsInTime<Row>(
  client: Answering,
  question: Question,
  seconds: number,
): Promise<Row[]> {
  const settings = { ...question.clickhouse_settings, max_execution_time: seconds };
  const inTime = {
    ...question,
    clickhouse_settings: { ...settings, timeout_overflow_mode: 'break' } as const,
  };
  const answer = await collect(piecesOf(client, asRows(inTime)));
  const lines = answer.toString('utf8').split('\n');
  try {
    return lines
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line.replace(/,$/, '')) as Row);
  } catch {
    throw new AnswerCutOff();
  }
}

/** Yields rows as they arrive. They are valid only once the generator has ended; it throws as `readRows` rejects. */
export async function* streamRows<Row>(client: Answering, question: Question): AsyncGenerator<Row> {
  for await (const { bytes } of streamLines(client, question)) {
    for (const line of bytes.toString('utf8').split('\n')) if (line !== '') yield JSON.parse(line) as Row;
  }
}

/** Some whole lines; each is an object. */
export type Lines = { readonly bytes: Buffer; readonly count: number };

/** Yields the rows as lines of JSON. Otherwise like `streamRows`. */
export async function* streamLines(client: Answering, question: Question): AsyncGenerator<Lines> {
  let state: 'before' | 'within' | 'after' | 'torn' = 'before';
  let rest: Buffer = Buffer.alloc(0);
  for await (const piece of piecesOf(client, asRows(question))) {
    const bytes: Buffer = rest.length === 0 ? piece : Buffer.concat([rest, piece]);
    const lines = Buffer.allocUnsafe(bytes.length);
    let [length, count, from] = [0, 0, 0];
    for (let end = bytes.indexOf(lineFeed); end !== -1; from = end + 1, end = bytes.indexOf(lineFeed, from)) {
      const to = bytes[end - 1] === comma ? end - 1 : end;
      if (state === 'within' && bytes[from] === brace && bytes[to - 1] === closingBrace) {
        length += bytes.copy(lines, length, from, to);
        lines[length++] = lineFeed;
        count++;
      } else if (bytes[from] === bracket && state === 'before') state = 'within';
      else if (bytes[from] === closingBracket && state === 'within') state = 'after';
      else if (from !== end || state !== 'within') state = 'torn'; // The rest may be ClickHouse's error.
    }
    rest = bytes.subarray(from);
    if (count > 0) yield { bytes: lines.subarray(0, length), count };
  }
  if (state !== 'after' || rest.length > 0) throw new AnswerCutOff();
}

/**
 * Yields the bytes of an answer whose columns are all strings: one value after another, with nothing between them. They are valid only
 * once the generator has ended; it throws as `readRows` rejects.
 */
export async function* streamBytes(client: Answering, question: Question): AsyncGenerator<Buffer> {
  const mark = randomBytes(16).toString('hex');
  const asBytes = {
    ...question,
    query: `${question.query} FORMAT CustomSeparated`,
    clickhouse_settings: {
      ...question.clickhouse_settings,
      format_custom_escaping_rule: 'Raw',
      format_custom_field_delimiter: '',
      format_custom_row_after_delimiter: '',
      format_custom_result_after_delimiter: mark,
    } as const,
  };
  let rest: Buffer = Buffer.alloc(0);
  for await (const piece of piecesOf(client, asBytes)) {
    // The last bytes may belong to the mark.
    const isLong = piece.length >= mark.length;
    if (isLong && rest.length > 0) yield rest;
    const bytes: Buffer = isLong ? piece : Buffer.concat([rest, piece]);
    const end = Math.max(0, bytes.length - mark.length);
    if (end > 0) yield bytes.subarray(0, end);
    rest = bytes.subarray(end);
  }
  if (rest.toString('latin1') !== mark) throw new AnswerCutOff();
}

export function readBytes(client: Answering, question: Question): Promise<Buffer> {
  return collect(streamBytes(client, question));
}

function asRows(question: Question): Question {
  return {
    ...question,
    query: `${question.query} FORMAT JSONEachRow`,
    clickhouse_settings: { ...question.clickhouse_settings, output_format_json_array_of_rows: 1 },
  };
}

/** The pieces of an answer. Throws ClickHouse's error even if it comes in the middle of the answer. */
async function* piecesOf(client: Answering, question: Question): AsyncGenerator<Buffer> {
  const { stream, response_headers: headers } = await client.exec(question);
  const { abort_signal: signal } = question;
  const end = () => stream.destroy(new Error('the reading of an answer was ended'));
  signal?.addEventListener('abort', end, { once: true });
  const tag = String(headers['x-clickhouse-exception-tag'] ?? '');
  // The last pieces, which contain ClickHouse's error if there is one.
  const last: Buffer[] = [];
  let lastBytes = 0;
  try {
    signal?.throwIfAborted();
    for await (const piece of stream as AsyncIterable<Buffer>) {
      last.push(piece);
      lastBytes += piece.length;
      while (lastBytes - (last[0] as Buffer).length >= errorBytesMax)
        lastBytes -= (last.shift() as Buffer).length;
      yield piece;
    }
  } catch (error) {
    // ClickHouse breaks the connection after its error.
    throw errorAtTheEndOf(last, tag) ?? error;
  } finally {
    signal?.removeEventListener('abort', end);
    stream.destroy();
  }
  const error = errorAtTheEndOf(last, tag);
  if (error !== undefined) throw error;
}

/** ClickHouse's error, if it has appended one to what it had already sent. */
function errorAtTheEndOf(pieces: readonly Buffer[], tag: string): Error | undefined {
  const bytes = joined(pieces);
  if (tag === '' || !bytes.subarray(-tag.length - 64).includes(`${tag}\r\n__exception__`)) return undefined;
  return extractErrorAtTheEndOfChunk(bytes, tag);
}

/** No error of ClickHouse is longer. */
const errorBytesMax = 16 * 1024;

async function collect(pieces: AsyncIterable<Buffer>): Promise<Buffer> {
  const all: Buffer[] = [];
  for await (const piece of pieces) all.push(piece);
  return joined(all);
}

function joined(pieces: readonly Buffer[]): Buffer {
  return pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
}

const lineFeed = 0x0a;
const comma = 0x2c;
const brace = 0x7b;
const closingBrace = 0x7d;
const bracket = 0x5b;
const closingBracket = 0x5d;

/** An expression for a time as text in UTC, such as 2026-01-31T12:00:00.000Z. */
export function isoTime(time: string): string {
  return `concat(replaceOne(toString(toTimeZone(${time}, 'UTC')), ' ', 'T'), 'Z')`;
}
