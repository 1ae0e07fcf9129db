// Owns the HTTP side of the embedded ClickHouse: one request is one statement. `handle` is the request's
// life from top to bottom; the engine's side is in engine.ts.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import type { Log } from '../../../src/log.js';
import type { DataFile, Engine, Summary } from './engine.js';
import { ClickHouseException, toException } from './errors.js';
import { headerBytesMax, keepAliveMs } from './limits.js';
import { bodyOf, header, type RequestOptions, readBody, readMultipart, readOptions } from './request.js';
import { Reply } from './response.js';
import { type InsertText, readStatement } from './sql-text.js';

/** Makes the HTTP server; the caller lets it listen on a loopback address. */
export function createClickHouseServer(engine: Engine, log: Log): Server {
  const server = createServer(
    { maxHeaderSize: headerBytesMax, keepAliveTimeout: keepAliveMs },
    (request, response) => {
      handle(engine, request, response).catch((error: unknown) => {
        log.error({ error }, 'request failed');
        response.destroy();
      });
    },
  );
  server.requestTimeout = 0; // a statement takes as long as it takes
  server.headersTimeout = 60_000;
  return server;
}

async function handle(engine: Engine, request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (!isLoopbackHost(header(request, 'host'))) {
    response
      .writeHead(403, { 'Content-Type': 'text/plain' })
      .end('This server answers to loopback names only\n');
    return;
  }
  const url = new URL(request.url ?? '/', 'http://localhost');
  if (url.pathname === '/ping' || url.pathname === '/replicas_status') {
    response.writeHead(200, { 'Content-Type': 'text/plain; charset=UTF-8' }).end('Ok.\n');
    return;
  }
  if (url.pathname !== '/') {
    response
      .writeHead(404, { 'Content-Type': 'text/plain; charset=UTF-8' })
      .end(`There is no handle ${url.pathname}\n`);
    return;
  }
  if (request.method !== 'GET' && request.method !== 'POST' && request.method !== 'HEAD') {
    response.writeHead(405, { Allow: 'GET, POST, HEAD' }).end();
    return;
  }
  let reply: Reply | undefined;
  try {
    const options = readOptions(request, url);
    reply = new Reply(request, response, options);
    if (options.query === '' && request.method !== 'POST') {
      response.writeHead(200, { 'Content-Type': 'text/html; charset=UTF-8' }).end('Ok.\n');
      return;
    }
    reply.end(await runStatement(engine, request, response, options, reply));
  } catch (error) {
    if (response.destroyed) return; // the client went away: nobody is told
    (reply ?? new Reply(request, response, undefined)).fail(toException(error));
  }
  request.resume(); // what is left of a refused body
}

/** Finds out what the request's text is, and runs it. */
async function runStatement(
  engine: Engine,
  request: IncomingMessage,
  response: ServerResponse,
  options: RequestOptions,
  reply: Reply,
): Promise<Summary> {
  const body = bodyOf(request);
  const contentType = header(request, 'content-type');
  if (contentType.startsWith('multipart/form-data')) {
    const fields = readMultipart(contentType, await readBody(body));
    const parameters = new Map(options.scope.parameters);
    for (const [name, value] of fields) if (name.startsWith('param_')) parameters.set(name.slice(6), value);
    const scope = { ...options.scope, parameters };
    return runText(
      engine,
      response,
      { ...options, scope },
      reply,
      Buffer.from(fields.get('query') ?? options.query),
    );
  }
  if (options.query !== '') {
    const statement = readStatement(options.query);
    if (statement.kind === 'insert' && wantsBody(statement.insert)) {
      const inline = inlineData(Buffer.from(options.query), options.query, statement.insert);
      return insertData(engine, options, options.query, statement.insert, inline, body);
    }
    const rest = await readBody(body);
    const text =
      rest.length === 0
        ? Buffer.from(options.query)
        : Buffer.concat([Buffer.from(`${options.query}\n`), rest]);
    return runText(engine, response, options, reply, text);
  }
  return runText(engine, response, options, reply, await readBody(body));
}

/** Runs a text that is complete: SQL, and perhaps an INSERT's data behind it. */
async function runText(
  engine: Engine,
  response: ServerResponse,
  options: RequestOptions,
  reply: Reply,
  text: Buffer,
): Promise<Summary> {
  const binary = text.toString('latin1'); // one character a byte: positions are those of the buffer
  const statement = readStatement(binary);
  const sqlOf = (end: number) => text.toString('utf8', 0, end);
  switch (statement.kind) {
    case 'empty':
      throw ClickHouseException.of(
        62,
        'SYNTAX_ERROR',
        'Syntax error: failed at position 1 (end of query): . Empty query',
      );
    case 'refused':
      throw ClickHouseException.of(statement.code, statement.type, statement.message);
    case 'insert':
      return insertText(engine, options, binary, text, statement.insert);
    case 'other': {
      reply.setFormat(options.format);
      const result = await engine.run(
        sqlOf(statement.end),
        options.scope,
        options.format,
        !statement.session,
      );
      if (result.bytes.length > 0) reply.write(result.bytes);
      return { rows: result.rows, writtenRows: 0, elapsedSeconds: result.elapsedSeconds };
    }
    case 'select': {
      const sql = sqlOf(statement.end);
      const again = readStatement(sql); // the same text with positions of characters instead of bytes
      if (again.kind !== 'select') throw new Error('a statement changed its kind');
      const format = again.format === undefined ? options.format : wordBehind(sql, again.format.end);
      reply.setFormat(format);
      return engine.select(sql, again, options.scope, options.format, (result) => {
        const abandon = () => result.destroy();
        response.once('close', abandon);
        result.once('close', () => response.off('close', abandon));
        result.on('data', (chunk: Buffer) => {
          if (reply.write(chunk)) return;
          result.pause();
          void reply.drained().then(() => result.resume());
        });
      });
    }
  }
}

/** An INSERT whose text and data are one buffer. */
async function insertText(
  engine: Engine,
  options: RequestOptions,
  binary: string,
  text: Buffer,
  insert: InsertText,
): Promise<Summary> {
  if (!wantsBody(insert)) {
    const { sql, parts } = asCharacters(text, text.length, insert);
    return engine.insert(sql, parts, undefined, options.scope);
  }
  const data = inlineData(text, binary, insert);
  const { sql, parts } = asCharacters(text, text.length - data.length, insert);
  return insertData(engine, options, sql, parts, data, undefined);
}

/** Writes the data to a file while it arrives; the engine starts when all of it is there. */
async function insertData(
  engine: Engine,
  options: RequestOptions,
  sql: string,
  insert: InsertText,
  inline: Buffer,
  body: Readable | undefined,
): Promise<Summary> {
  let file: DataFile | undefined;
  try {
    file = await engine.createDataFile();
    if (inline.length > 0) await file.append(inline);
    if (body !== undefined) {
      if (inline.length > 0) await file.append(Buffer.from('\n'));
      for await (const chunk of body as AsyncIterable<Buffer>) await file.append(chunk);
    }
    await file.finish();
    return await engine.insert(sql, insert, file, options.scope);
  } finally {
    await file?.remove();
  }
}

function wantsBody(insert: InsertText): boolean {
  return (
    insert.source.kind === 'data' || (insert.source.kind === 'select' && insert.source.input !== undefined)
  );
}

function inlineData(text: Buffer, binary: string, insert: InsertText): Buffer {
  const start =
    insert.source.kind === 'data'
      ? insert.source.dataStart
      : insert.source.kind === 'select'
        ? (insert.source.input?.dataStart ?? binary.length)
        : binary.length;
  return binary.length === text.length ? text.subarray(start) : Buffer.from(binary.slice(start));
}

/** The SQL part of an INSERT as text, read again so that positions count characters. */
function asCharacters(text: Buffer, bytes: number, insert: InsertText): { sql: string; parts: InsertText } {
  const sql = text.toString('utf8', 0, bytes);
  if (sql.length === bytes) return { sql, parts: insert };
  const again = readStatement(sql);
  if (again.kind !== 'insert') throw new Error('a statement changed its kind');
  return { sql, parts: again.insert };
}

function wordBehind(sql: string, position: number): string {
  return /^\s*(\w+)/.exec(sql.slice(position))?.[1] ?? '';
}

/** Only names and addresses of this host: a web page that points its own name at 127.0.0.1 gets nothing. */
function isLoopbackHost(host: string): boolean {
  const name = host.replace(/:\d+$/, '').toLowerCase();
  return name === '' || name === 'localhost' || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name);
}
