// Owns what a request's text and body become: SQL text of the URL, of the body or of both, and behind an
// INSERT its data. Text is read twice where it is not plain ASCII: as bytes to find where data begins, as
// characters to find where a clause goes.

import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type { DataFile } from './data-file.js';
import type { Engine, Outcome } from './engine.js';
import { ClickHouseException } from './errors.js';
import { bodyOf, chunksOf, header, type RequestOptions, readBody, readMultipart } from './request.js';
import type { Reply } from './response.js';
import { type InsertText, readStatement, type Statement } from './sql-text.js';

/** Runs the request's statement and writes its result to the reply; the caller ends the reply. */
export async function runRequest(
  engine: Engine,
  request: IncomingMessage,
  options: RequestOptions,
  reply: Reply,
): Promise<Outcome> {
  const body = bodyOf(request);
  const contentType = header(request, 'content-type');
  if (contentType.startsWith('multipart/form-data')) {
    const { query, parameters } = readMultipart(contentType, await readBody(body));
    const scope = { ...options.scope, parameters: new Map([...options.scope.parameters, ...parameters]) };
    return runText(engine, { ...options, scope }, reply, Buffer.from(query ?? options.query));
  }
  if (options.query === '') return runText(engine, options, reply, await readBody(body));

  const text = Buffer.from(options.query);
  const statement = readStatement(text.toString('latin1'));
  if (statement.kind === 'insert' && dataStartOf(statement) !== undefined) {
    return insertData(engine, options, reply, text, statement, body);
  }
  const rest = await readBody(body);
  return runText(engine, options, reply, rest.length === 0 ? text : Buffer.concat([text, newline, rest]));
}

/** Runs a text that is complete. */
async function runText(
  engine: Engine,
  options: RequestOptions,
  reply: Reply,
  text: Buffer,
): Promise<Outcome> {
  const statement = readStatement(text.toString('latin1'));
  if (statement.kind === 'insert') return insertData(engine, options, reply, text, statement, undefined);
  if (statement.kind === 'empty')
    throw ClickHouseException.of(62, 'SYNTAX_ERROR', 'Syntax error: Empty query');
  if (statement.kind === 'refused') {
    throw ClickHouseException.of(statement.code, statement.type, statement.message);
  }
  const sql = text.toString('utf8', 0, statement.end);
  if (statement.kind !== 'select') {
    reply.setFormat(options.format);
    const result = await engine.run(sql, statement.kind, options.scope, options.format);
    if (result.bytes.length > 0) reply.write(result.bytes);
    return { resultRows: result.rows, writtenRows: 0, elapsedSeconds: result.elapsedSeconds };
  }
  const select = inCharacters(sql, statement);
  const format = select.format === undefined ? options.format : nameBehind(sql, select.format.end);
  reply.setFormat(format);
  return engine.select(sql, select, options.scope, options.format, reply);
}

/** Runs an INSERT: what is behind it in the text is data, and so is `body`. */
async function insertData(
  engine: Engine,
  options: RequestOptions,
  reply: Reply,
  text: Buffer,
  statement: InsertText,
  body: Readable | undefined,
): Promise<Outcome> {
  const dataStart = dataStartOf(statement);
  const sql = text.toString('utf8', 0, dataStart ?? text.length);
  const insert = inCharacters(sql, statement);
  const isWanted = () => !reply.isClosed;
  if (dataStart === undefined) return engine.insert(sql, insert, undefined, options.scope, isWanted);
  let file: DataFile | undefined;
  try {
    file = await engine.createDataFile();
    const inline = text.subarray(dataStart);
    if (inline.length > 0) await file.append(inline);
    if (inline.length > 0 && body !== undefined) await file.append(newline);
    if (body !== undefined) for await (const chunk of chunksOf(body)) await file.append(chunk);
    await file.finish(); // only now: of a client that goes away in the middle nothing is stored
    return await engine.insert(sql, insert, file, options.scope, isWanted);
  } finally {
    await file?.remove();
  }
}

const newline = Buffer.from('\n');

/** Where the data of the request begins in the text; undefined: the statement reads none. */
function dataStartOf(insert: InsertText): number | undefined {
  const { source } = insert;
  return source.kind === 'data' || source.kind === 'input' ? source.dataStart : undefined;
}

/** The places of a statement that was read as bytes, in its characters. */
function inCharacters<Kind extends Statement>(sql: string, statement: Kind): Kind {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: this is what ASCII is
  if (/^[\x00-\x7f]*$/.test(sql)) return statement;
  const again = readStatement(sql);
  if (again.kind !== statement.kind) throw new Error(`${statement.kind} became ${again.kind}`);
  return again as Kind;
}

function nameBehind(sql: string, position: number): string {
  return /^\s*(\w+)/.exec(sql.slice(position))?.[1] ?? '';
}
