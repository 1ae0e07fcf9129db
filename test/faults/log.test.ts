// Logs that cannot be written: every write to /dev/full fails as on a full disk.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type Child, startChild } from '../harness/child.js';
import { freePort } from '../harness/free-port.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { track, untilStored } from '../harness/track.js';
import { until } from '../harness/wait.js';
import { root } from '../support/deploy-file.js';

let sluice: SluiceHandle;
const started: Child[] = [];

before(async () => {
  assert.ok(existsSync('/dev/full'));
  sluice = await startSluice({ apiProcesses: 0, workers: 0 });
});

after(async () => {
  for (const child of started) await child.stop();
  await sluice?.stop();
});

async function startWithFullLog(program: string, env: NodeJS.ProcessEnv): Promise<Child> {
  const child = await startChild({
    name: program,
    program: {
      command: 'sh',
      args: ['-c', 'exec "$0" "$1" 2>/dev/full', process.execPath, join(root, 'dist', program)],
      env: { ...sluice.env, LOG_LEVEL: 'debug', ...env },
    },
    healthy: () => true,
    healthyDeadlineMs: 10_000,
  });
  started.push(child);
  return child;
}

test('an API process and a worker still accept and store records', async () => {
  const [port, adminPort] = [await freePort(), await freePort()];
  const baseUrl = `http://127.0.0.1:${port}`;
  const api = await startWithFullLog('src/main.js', { PORT: String(port), ADMIN_PORT: String(adminPort) });
  const worker = await startWithFullLog('workers/main.js', {});
  await until(async () => (await fetch(`${baseUrl}/health/ready`)).status === 200, 'the API is ready');
  const reply = await track(baseUrl, { body: { app_id: sluice.appId, event: 'Unlogged', identity: 'ada' } });
  assert.equal(reply.status, 200);
  await untilStored(sluice, sluice.appId, 1);
  assert.deepEqual(
    [await api.sigterm(), await worker.sigterm()],
    [
      { code: 0, signal: null },
      { code: 0, signal: null },
    ],
  );
});
