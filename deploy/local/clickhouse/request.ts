// Owns the reading of a request: from URL, headers and body to a statement with its scope. The rules are
// those of ClickHouse's HTTP interface (https://clickhouse.com/docs/interfaces/http).

import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { ClickHouseException } from './errors.js';
import { queryBodyBytesMax } from './limits.js';
import type { Scope } from './sessions.js';
import { isPlainName } from './sql-tokens.js';

export type RequestOptions = {
  readonly queryId: string;
  readonly scope: Scope;
  readonly format: string;
  /** SQL text of the URL, empty when there is none. */
  readonly query: string;
  readonly waitEndOfQuery: boolean;
  readonly compressResponse: boolean;
};

/** Parameters that are no settings. Those of sessions and quotas have no meaning with one user: ignored. */
const httpParameters = new Set([
  'query',
  'query_id',
  'database',
  'default_format',
  'user',
  'password',
  'quota_key',
  'role',
  'session_id',
  'session_timeout',
  'session_check',
  'stacktrace',
  'wait_end_of_query',
  'buffer_size',
  'compress',
  'decompress',
  'close_session',
  'client_protocol_version',
  'http_write_exception_in_output_format',
  'enable_http_compression',
]);

/** Reads URL and headers. Throws ClickHouse's exception for what it refuses. */
export function readOptions(request: IncomingMessage, url: URL): RequestOptions {
  const parameters = new Map<string, string>();
  const settings = new Map<string, string>();
  for (const [name, value] of url.searchParams) {
    if (name.startsWith('param_')) parameters.set(checkName(name.slice(6)), value);
    else if (!httpParameters.has(name)) settings.set(checkName(name), value);
  }
  authenticate(request, url);
  const query = (name: string) => url.searchParams.get(name) ?? '';
  if (query('compress') === '1' || query('decompress') === '1') {
    throw ClickHouseException.of(
      48,
      'NOT_IMPLEMENTED',
      'The native compression (compress, decompress) is not supported',
    );
  }
  const queryId = query('query_id') || randomUUID();
  // What system.processes shows of the request's id, since the engine gives each statement an id of its own.
  if (!settings.has('log_comment')) settings.set('log_comment', queryId);
  const format = query('default_format') || header(request, 'x-clickhouse-format') || 'TabSeparated';
  if (!isPlainName(format)) throw ClickHouseException.of(73, 'UNKNOWN_FORMAT', `Unknown format ${format}`);
  return {
    queryId,
    scope: {
      database: query('database') || header(request, 'x-clickhouse-database') || 'default',
      settings,
      parameters,
    },
    format,
    query: query('query'),
    waitEndOfQuery: query('wait_end_of_query') === '1',
    compressResponse: ['1', 'true'].includes(query('enable_http_compression')),
  };
}

/** The body without its compression; reading it rejects when the client goes away. */
export function bodyOf(request: IncomingMessage): Readable {
  const encoding = header(request, 'content-encoding').trim().toLowerCase();
  if (encoding === '' || encoding === 'identity') return request;
  const inflate =
    encoding === 'gzip' || encoding === 'x-gzip'
      ? createGunzip()
      : encoding === 'deflate'
        ? createInflate()
        : encoding === 'br'
          ? createBrotliDecompress()
          : undefined;
  if (inflate === undefined) {
    throw ClickHouseException.of(779, 'UNSUPPORTED_MEDIA_TYPE', `Unsupported Content-Encoding ${encoding}`);
  }
  // Not `pipeline`: it would close the connection when the data is bad, before the reply says so.
  inflate.on('error', () => undefined); // whoever reads it gets the error as well
  request.on('error', (error) => inflate.destroy(error));
  request.pipe(inflate);
  return inflate;
}

/** The pieces of a body. Who stops in the middle leaves the connection open for a reply. */
export function chunksOf(body: Readable): AsyncIterable<Buffer> {
  return body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
}

/** Reads a body that holds SQL text. */
export async function readBody(body: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of chunksOf(body)) {
    bytes += chunk.length;
    if (bytes > queryBodyBytesMax) {
      const message = `The body of a request exceeds ${queryBodyBytesMax} bytes`;
      throw ClickHouseException.of(229, 'QUERY_IS_TOO_LARGE', message);
    }
    chunks.push(chunk);
  }
  return chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
}

export type Multipart = {
  readonly query: string | undefined;
  readonly parameters: ReadonlyMap<string, string>;
};

/** Reads a form with the fields `query` and `param_*`, as `@clickhouse/client` sends long parameters. */
export function readMultipart(contentType: string, body: Buffer): Multipart {
  const boundary = /boundary="?([^";]+)"?/i.exec(contentType)?.[1];
  if (boundary === undefined)
    throw ClickHouseException.of(36, 'BAD_ARGUMENTS', 'multipart/form-data has no boundary');
  const parameters = new Map<string, string>();
  let query: string | undefined;
  const parts = `\r\n${body.toString('latin1')}`.split(`\r\n--${boundary}`).slice(1, -1);
  for (const part of parts) {
    const headEnd = part.indexOf('\r\n\r\n');
    const name = /name="([^"]*)"/i.exec(part.slice(0, headEnd))?.[1] ?? '';
    const value = Buffer.from(part.slice(headEnd + 4), 'latin1').toString();
    if (name === 'query') query = value;
    else if (name.startsWith('param_')) parameters.set(checkName(name.slice(6)), value);
    else throw ClickHouseException.of(48, 'NOT_IMPLEMENTED', `The form's field ${name} is not supported`);
  }
  return { query, parameters };
}

/** There is one user, `default`, without a password: anything else is refused as ClickHouse would. */
function authenticate(request: IncomingMessage, url: URL): void {
  let user = url.searchParams.get('user') ?? header(request, 'x-clickhouse-user');
  let password = url.searchParams.get('password') ?? header(request, 'x-clickhouse-key');
  const basic = /^Basic\s+(\S+)$/i.exec(header(request, 'authorization'))?.[1];
  if (basic !== undefined) {
    const [name = '', ...rest] = Buffer.from(basic, 'base64').toString().split(':');
    user = name;
    password = rest.join(':');
  }
  if ((user === '' || user === 'default') && password === '') return;
  throw ClickHouseException.of(
    516,
    'AUTHENTICATION_FAILED',
    'Authentication failed: password is incorrect, or there is no user with such name',
  );
}

function checkName(name: string): string {
  if (isPlainName(name)) return name;
  throw ClickHouseException.of(115, 'UNKNOWN_SETTING', `Unknown setting '${name.slice(0, 100)}'`);
}

export function header(request: IncomingMessage, name: string): string {
  const value = request.headers[name];
  return (Array.isArray(value) ? value[0] : value) ?? '';
}
