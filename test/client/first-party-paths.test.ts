// SDK_PATH and COLLECT_PATH: the client library under names of the site's own, from the script to what is stored.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readConfig } from '../../src/config.js';
import { event, request } from '../harness/collect.js';
import { ownApi } from '../support/sluice.js';

const sluice = await ownApi({ SDK_PATH: '/assets/app.js', COLLECT_PATH: '/in, /old/in' });

describe('paths of the site’s own', () => {
  const statusOf = async (path: string, init: RequestInit = {}) =>
    (await fetch(sluice.baseUrl + path, init)).status;

  test('serve the script with its source map, and nothing where they were', async () => {
    const answer = await fetch(`${sluice.baseUrl}/assets/app.js`);
    assert.deepEqual([answer.status, answer.headers.get('sourcemap')], [200, 'app.js.map']);
    assert.ok((await answer.text()).includes('sluice:'));
    assert.equal(await statusOf('/assets/app.js.map'), 200);
    assert.equal(await statusOf('/sdk.js'), 404);
  });

  test('accept messages of any page at each of them, and nowhere else', async () => {
    const message = () => JSON.stringify(request(sluice.appId, [event({ event: 'By another name' })]));
    for (const path of ['/in', '/old/in']) {
      const answer = await fetch(sluice.baseUrl + path, { method: 'POST', body: message() });
      assert.equal(answer.status, 200, await answer.text());
      assert.equal(answer.headers.get('access-control-allow-origin'), '*');
      assert.equal(await statusOf(path, { method: 'OPTIONS' }), 204);
    }
    assert.equal(await statusOf('/api/collect', { method: 'POST', body: message() }), 404);
  });

  test('are in the OpenAPI document, each operation once', async () => {
    const document = (await (await fetch(`${sluice.baseUrl}/openapi.json`)).json()) as { paths: object };
    const paths = Object.keys(document.paths);
    assert.ok(
      paths.includes('/in') && paths.includes('/assets/app.js') && paths.includes('/assets/app.js.map'),
    );
    assert.deepEqual(
      paths.filter((path) => ['/old/in', '/api/collect', '/sdk.js'].includes(path)),
      [],
    );
  });
});

test('the path of another endpoint, one path twice and a text that is no path are refused by name', () => {
  const refused: readonly (readonly [name: string, value: string])[] = [
    ...[
      'sdk.js',
      '/',
      '/a/',
      '//a',
      '/a b',
      '/a?b',
      '/:a',
      '/*',
      '/a,',
      '/..',
      '/a/../b',
      '/%61',
      `/${'a'.repeat(255)}`,
    ],
    ...['/api/track', '/api', '/v1/batch', '/health/live', '/micro/reset', '/openapi.json'],
  ].flatMap((value) => [['SDK_PATH', value] as const, ['COLLECT_PATH', value] as const]);
  for (const [name, value] of refused)
    assert.throws(() => readConfig({ [name]: value }), new RegExp(`^Error: ${name} must be paths`), value);
  assert.throws(() => readConfig({ SDK_PATH: '/a', COLLECT_PATH: '/a' }), /name \/a twice/);
  assert.throws(() => readConfig({ SDK_PATH: '/a', COLLECT_PATH: '/a.map' }), /name \/a\.map twice/);
  assert.throws(() => readConfig({ COLLECT_PATH: '/a,/a' }), /name \/a twice/);
  const { sdkPaths, collectPaths } = readConfig({
    SDK_PATH: '/a.js, /sdk.js',
    COLLECT_PATH: '/api/collect,/e',
  });
  assert.deepEqual(
    [sdkPaths, collectPaths],
    [
      ['/a.js', '/sdk.js'],
      ['/api/collect', '/e'],
    ],
  );
});
