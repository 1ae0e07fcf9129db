// deploy/proxy: a real nginx and a real Caddy with the files of the examples, in front of the service.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { deletions } from '../../src/contract/limits.js';
import { basic, deletionPaths } from '../harness/deletion.js';
import { plainEnvironment } from '../harness/environment.js';
import { tempDir } from '../harness/temp-dir.js';
import { checkCaddyfile, type StartedProxy, startCaddy, startNginx } from '../support/proxies.js';
import { ownApi } from '../support/sluice.js';
import { test } from '../support/test.js';

const proxies: Partial<Record<'nginx' | 'caddy', StartedProxy>> = {};

const sluice = await ownApi({ TRUSTED_PROXIES: '127.0.0.1' });
const upstream = { apiPort: new URL(sluice.baseUrl).port, adminPort: new URL(sluice.adminUrl).port };
[proxies.nginx, proxies.caddy] = await Promise.all([startNginx(upstream), startCaddy(upstream)]);

after(() => Promise.all([proxies.nginx?.stop(), proxies.caddy?.stop()]));

type Answer = {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly text: string;
};

/** One request over TLS. A body in pieces is sent in chunks, without its length. */
function ask(
  origin: string,
  method: string,
  path: string,
  body: Buffer | readonly Buffer[] = Buffer.alloc(0),
  headers: Readonly<Record<string, string>> = {},
  agent?: Agent,
): Promise<Answer> {
  return new Promise((settle, reject) => {
    const length = Buffer.isBuffer(body) && method === 'POST' ? { 'content-length': body.length } : {};
    const sent = request(
      `${origin}${path}`,
      {
        method,
        headers: { 'content-type': 'application/json', ...length, ...headers },
        rejectUnauthorized: false,
        ...(agent === undefined ? { agent: false as const } : { agent }),
      },
      (reply) => {
        const { statusCode: status = 0, headers } = reply;
        text(reply).then((body) => settle({ status, headers, text: body }), reject);
      },
    );
    sent.setTimeout(30_000, () => sent.destroy(new Error('no answer')));
    sent.once('error', reject);
    for (const piece of Buffer.isBuffer(body) ? [body] : body) sent.write(piece);
    sent.end();
  });
}

function json(value: object): Buffer {
  return Buffer.from(JSON.stringify(value));
}

for (const name of ['nginx', 'caddy'] as const) {
  describe(`behind ${name}`, () => {
    const origin = () => String(proxies[name]?.origin);
    const event = (identity: string) => ({ app_id: sluice.appId, event: 'Seen', identity });

    test('single events, compressed bulk loads and chunks are accepted, many on one connection', async () => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: false });
      for (let at = 0; at < 20; at++) {
        const answer = await ask(origin(), 'POST', '/api/track', json(event(`${name}-${at}`)), {}, agent);
        assert.deepEqual([answer.status, answer.text], [200, '{}']);
      }
      const events = Array.from({ length: 1000 }, (_, at) => ({ event: 'Seen', identity: `${name} ${at}` }));
      const bulk = gzipSync(json({ app_id: sluice.appId, events }));
      const loaded = await ask(origin(), 'POST', '/api/track', bulk, { 'content-encoding': 'gzip' }, agent);
      assert.deepEqual([loaded.status, loaded.text], [200, '{}']);
      for (let at = 0; at < 3; at++) {
        const whole = json(event(`${name}-chunks-${at}`));
        const pieces = [whole.subarray(0, 10), whole.subarray(10)];
        const answer = await ask(origin(), 'POST', '/api/track', pieces, {}, agent);
        assert.deepEqual([answer.status, answer.text], [200, '{}']);
      }
      agent.destroy();
    });

    test('a body of 15 MiB is accepted, and a larger one is refused by Sluice or by the proxy', async () => {
      const bulk = (bytes: number) =>
        json({
          app_id: sluice.appId,
          events: [{ event: 'Seen', identity: `${name} large` }],
          more: 'x'.repeat(bytes),
        });
      const MiB = 1024 * 1024;
      assert.equal((await ask(origin(), 'POST', '/api/track', bulk(15 * MiB))).status, 200);
      const refused = await ask(origin(), 'POST', '/api/track', bulk(17 * MiB));
      assert.equal(refused.status, 413);
      assert.match(refused.text, /"code":"body_too_large"/);
      // nginx reads the length and answers. Caddy counts the bytes and cuts the connection.
      const cut = await ask(origin(), 'POST', '/api/track', bulk(40 * MiB)).catch(() => ({ status: 413 }));
      assert.ok([413, 502].includes(cut.status), String(cut.status));
    });

    test('cookies of 12 kB are accepted, and longer ones are refused by Sluice', async () => {
      const cookie = (bytes: number) => ({ cookie: `a=${'c'.repeat(bytes)}` });
      const taken = await ask(origin(), 'POST', '/api/track', json(event(`${name} cookies`)), cookie(12_000));
      assert.equal(taken.status, 200, taken.text);
      const refused = await ask(origin(), 'POST', '/api/track', json(event(`${name} more`)), cookie(20_000));
      assert.equal(refused.status, 431);
      assert.match(refused.text, /"code":"headers_too_large"/);
    });

    test('limits answer 429 with Retry-After, and errors arrive as Sluice writes them', async () => {
      const statuses: number[] = [];
      let last: Answer | undefined;
      for (let at = 0; at < 31; at++) {
        last = await ask(origin(), 'POST', '/api/track', json(event(`${name} busy`)));
        statuses.push(last.status);
      }
      assert.deepEqual(statuses, [...Array.from({ length: 30 }, () => 200), 429]);
      assert.match(String(last?.headers['retry-after']), /^\d+$/);
      const wrong = await ask(origin(), 'POST', '/api/track', json({ app_id: sluice.appId }));
      assert.equal(wrong.status, 400);
      assert.match(wrong.text, /"err":\{/);
    });

    test('callers are counted by their own addresses, despite forwarding headers that they send', async () => {
      const last = name === 'nginx' ? 10 : 20;
      const attempt = (host: number, claimed: string) =>
        ask(
          origin(),
          'POST',
          deletionPaths.token,
          undefined,
          { authorization: basic(sluice.appId, 'wrong'), 'x-forwarded-for': claimed },
          new Agent({ localAddress: `127.0.0.${host}`, rejectUnauthorized: false }),
        );
      const statuses: number[] = [];
      for (let at = 0; at <= deletions.tokenFailuresPerMinuteMax; at++)
        statuses.push((await attempt(last, `192.0.2.${at}`)).status);
      const allowed = Array.from({ length: deletions.tokenFailuresPerMinuteMax }, () => 401);
      assert.deepEqual(statuses, [...allowed, 429]);
      assert.equal((await attempt(last + 1, '192.0.2.1')).status, 401);
    });

    test('the bench loads it by TLS, and finds every request answered', async () => {
      const dir = tempDir('bench');
      const args = ['--url', origin(), '--app-id', sluice.appId, '--rate', '100', '--duration', '1'];
      // Enough connections for a slow machine; most are never opened.
      const connections = ['--connections', '100', '--out', join(dir, name)];
      const env = { ...plainEnvironment(), NODE_EXTRA_CA_CERTS: proxies[name]?.authority };
      const main = fileURLToPath(new URL('../../bench/main.js', import.meta.url));
      const child = spawn(process.execPath, [main, 'single', ...args, ...connections], { env });
      const [output, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
      const { outcome } = JSON.parse(readFileSync(join(dir, `${name}.json`), 'utf8')) as {
        outcome: { endings: Record<string, number> };
      };
      assert.deepEqual(outcome.endings, { 200: 100 }, output + errors);
    });

    test('the administration is not there, and HEAD has no body', async () => {
      assert.equal((await ask(origin(), 'GET', '/metrics')).status, 404);
      const head = await ask(origin(), 'HEAD', '/sdk.js');
      assert.deepEqual([head.status, head.text], [200, '']);
    });
  });
}

test('Caddy accepts its file unchanged, and serves the administration on a port of its own', async () => {
  assert.equal(checkCaddyfile(), '');
  const reply = await fetch(`${proxies.caddy?.adminOrigin}/metrics`);
  assert.equal(reply.status, 200);
  assert.match(
    await reply.text(),
    /sluice_http_request_duration_seconds_count\{endpoint="\/api\/track",status="429"\} [1-9]/,
  );
});
