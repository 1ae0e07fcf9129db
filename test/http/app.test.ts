// The API as a function of its configuration, in the process of the test.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startApp } from '../../src/app.js';
import { readConfig } from '../../src/config.js';
import { createLog } from '../../src/log.js';
import { freePort } from '../harness/free-port.js';
import { post } from '../harness/ingestion.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();

test('an app accepts events until it is closed, and then nothing of it is left', async () => {
  const [port, adminPort] = [await freePort(), await freePort()];
  const config = readConfig({
    REDIS_URL: sluice.redisUrl,
    CLICKHOUSE_URL: sluice.clickhouseUrl,
    CLICKHOUSE_DATABASE: sluice.database,
    HOST: '127.0.0.1',
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
  });
  const app = await startApp(config, createLog('api', 'silent'));
  const url = `http://127.0.0.1:${port}`;
  const metricsUrl = `http://127.0.0.1:${adminPort}/metrics`;
  const isReady = () => fetch(`${url}/health/ready`).then(({ status }) => status === 200);
  await until(isReady, 'it is ready');
  const event = { app_id: sluice.appId, event: 'Opened', identity: 'ada' };
  assert.equal((await post(url, '/api/track', JSON.stringify(event))).status, 200);
  const metrics = await (await fetch(metricsUrl)).text();
  await app.close();
  await assert.rejects(fetch(`${url}/health/live`));
  await assert.rejects(fetch(metricsUrl));
  // The sums of all API processes, which other tests use too.
  const counted = 'sluice_http_request_duration_seconds_count\\{endpoint="/api/track",status=';
  assert.match(metrics, new RegExp(`^${counted}"200"\\} [1-9]`, 'm'));
  assert.match(metrics, new RegExp(`^${counted}"503"\\} \\d`, 'm'), 'a first 503 is an increase');
});
