// GET /sdk.js and its source map: the built files as browsers and caches request them. This process serves the routes
// from a folder of its own, and the whole service is asked for what the build made.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { sdkRoutes } from '../../src/http/pages/sdk.js';
import { listen, type Server } from '../../src/http/protocol/server.js';
import { createLog } from '../../src/log.js';
import { freePort } from '../harness/free-port.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { sharedSluice } from '../support/sluice.js';

const script = `(()=>{${'globalThis.sluice ??= {};'.repeat(200)}})();\n//# sourceMappingURL=sdk.js.map\n`;
const map = JSON.stringify({ version: 3, sources: ['a.ts'], mappings: 'AAAA' });

let folder: string;
let empty: string;
let server: Server;
let emptyServer: Server;
let baseUrl: string;
let emptyUrl: string;
/** The files that the server of the empty folder says it does not serve. */
const warned: string[] = [];

const sluice = await sharedSluice();

before(async () => {
  [folder, empty] = [tempDir('sdk'), tempDir('sdk')];
  writeFileSync(join(folder, 'sdk.js'), script);
  writeFileSync(join(folder, 'sdk.js.map'), map);
  const log = createLog('test', 'silent');
  const [port, emptyPort] = [await freePort(), await freePort()];
  server = await listen(
    '127.0.0.1',
    port,
    'PORT',
    false,
    sdkRoutes({ folder, paths: ['/sdk.js'], log }),
    log,
  );
  const warn = ({ path }: { path: string }) => void warned.push(path);
  const watched = Object.assign(createLog('test', 'silent'), { warn });
  emptyServer = await listen(
    '127.0.0.1',
    emptyPort,
    'PORT',
    false,
    sdkRoutes({ folder: empty, paths: ['/sdk.js'], log: watched }),
    log,
  );
  baseUrl = `http://127.0.0.1:${port}`;
  emptyUrl = `http://127.0.0.1:${emptyPort}`;
});
after(async () => {
  await server?.close();
  await emptyServer?.close();
  for (const dir of [folder, empty]) if (dir !== undefined) removeTempDir(dir);
});

type Answer = {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
};

/** Sends exactly these headers and does not decode the answer, unlike `fetch`. */
async function get(
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
  url = baseUrl,
): Promise<Answer> {
  const asked = request(`${url}${path}`, {
    method,
    headers,
    agent: false,
    signal: AbortSignal.timeout(10_000),
  });
  asked.end();
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk as Buffer);
  return { status: answer.statusCode ?? 0, headers: answer.headers, body: Buffer.concat(chunks) };
}

const encoded = { br: brotliDecompressSync, gzip: gunzipSync };

describe('GET /sdk.js', () => {
  test('is a script that any page may load, cache and map to its sources', async () => {
    const { status, headers, body } = await get('/sdk.js');
    assert.equal(status, 200);
    assert.equal(body.toString(), script);
    assert.equal(headers['content-type'], 'text/javascript; charset=utf-8');
    assert.match(headers['cache-control'] ?? '', /^public, max-age=\d+$/);
    assert.equal(headers.vary, 'Accept-Encoding');
    assert.equal(headers['access-control-allow-origin'], '*');
    assert.equal(headers['cross-origin-resource-policy'], 'cross-origin');
    assert.equal(headers['x-content-type-options'], 'nosniff');
    assert.equal(headers.sourcemap, 'sdk.js.map');
    assert.equal(headers['content-encoding'], undefined);
  });

  const choices: readonly [accept: string, encoding: keyof typeof encoded | undefined][] = [
    ['gzip, deflate, br, zstd', 'br'],
    ['gzip', 'gzip'],
    ['GZIP;q=0.5', 'gzip'],
    ['br;q=0, gzip;q=1.0', 'gzip'],
    ['gzip;q=0.000, br;q=0', undefined],
    ['identity', undefined],
    ['xgzip, brotli', undefined],
    ['', undefined],
  ];
  for (const [accept, encoding] of choices) {
    test(`with Accept-Encoding "${accept}" comes ${encoding ?? 'plain'}`, async () => {
      const { headers, body } = await get('/sdk.js', { 'accept-encoding': accept });
      assert.equal(headers['content-encoding'], encoding);
      assert.equal(Number(headers['content-length']), body.length);
      const plain = encoding === undefined ? body : encoded[encoding](body);
      assert.equal(plain.toString(), script);
      assert.ok(encoding === undefined || body.length < script.length / 2);
    });
  }

  test('is not sent again to a client that has it: 304 only for the ETag of the same encoding', async () => {
    const etags = new Map<string, string>();
    for (const accept of ['', 'gzip', 'br']) {
      const { headers } = await get('/sdk.js', { 'accept-encoding': accept });
      etags.set(accept, headers.etag ?? '');
    }
    assert.equal(new Set(etags.values()).size, 3, 'forms differ in their bytes, so their ETags do');
    const etag = etags.get('gzip') ?? '';
    assert.match(etag, /^"[^"]+"$/);
    const ask = (known: string, accept = 'gzip') =>
      get('/sdk.js', { 'accept-encoding': accept, 'if-none-match': known });
    for (const known of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
      const { status, headers, body } = await ask(known);
      assert.equal(status, 304, known);
      assert.equal(headers.etag, etag);
      assert.ok(headers['cache-control'] && headers.vary && headers['access-control-allow-origin']);
      assert.equal(headers['content-length'], undefined);
      assert.equal(headers['content-type'], undefined);
      assert.equal(body.length, 0);
    }
    assert.equal((await ask('"other"')).status, 200);
    assert.equal((await ask(etag, 'br')).status, 200);
  });

  test('answers HEAD with the headers of GET', async () => {
    for (const accept of ['gzip', '']) {
      const asked = await get('/sdk.js', { 'accept-encoding': accept });
      const { status, headers, body } = await get('/sdk.js', { 'accept-encoding': accept }, 'HEAD');
      const { date: _, ...rest } = headers;
      const { date: __, ...expected } = asked.headers;
      assert.deepEqual([status, rest, body.length], [200, expected, 0]);
    }
  });

  test('answers other methods 405, readable by pages', async () => {
    const { status, headers } = await get('/sdk.js', {}, 'DELETE');
    assert.deepEqual(
      [status, headers.allow, headers['access-control-allow-origin']],
      [405, 'GET, HEAD', '*'],
    );
  });

  test('is 404 if it was not built', async () => {
    for (const path of ['/sdk.js', '/sdk.js.map']) {
      const { status, headers, body } = await get(path, {}, 'GET', emptyUrl);
      assert.equal(status, 404);
      assert.equal(JSON.parse(body.toString()).err.code, 'not_found');
      assert.equal(headers['access-control-allow-origin'], '*');
      assert.equal(headers['cache-control'], undefined, 'no cache keeps the answer');
    }
  });
});

test('GET /sdk.js.map is JSON', async () => {
  const { status, headers, body } = await get('/sdk.js.map', { 'accept-encoding': 'gzip' });
  assert.deepEqual(
    [status, headers['content-type'], headers.sourcemap],
    [200, 'application/json', undefined],
  );
  assert.equal(gunzipSync(body).toString(), map);
});

test('the service serves what was built, or says in its log that nothing was', async () => {
  for (const name of ['sdk.js', 'sdk.js.map']) {
    const built = fileURLToPath(new URL(`../../${name}`, import.meta.url));
    const { status, body } = await get(`/${name}`, {}, 'GET', sluice.baseUrl);
    assert.equal(status, existsSync(built) ? 200 : 404);
    if (existsSync(built)) assert.ok(body.equals(readFileSync(built)));
  }
  assert.deepEqual(
    warned,
    ['sdk.js', 'sdk.js.map'].map((name) => join(empty, name)),
  );
});
