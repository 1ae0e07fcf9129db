// The bench against a deployment whose API stands behind a server that loses or doubles one acknowledged event: a
// run must not end well.

import assert from 'node:assert/strict';
import { Agent, createServer, request as send } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { type Deployment, startDeployment } from '../bench/deployment.js';
import { deploymentSubject } from '../bench/deployment-subject.js';
import { BenchError } from '../bench/failure.js';
import type { Progress } from '../bench/progress.js';
import { assertStored } from '../bench/stored.js';
import { runThroughput, type ThroughputOptions } from '../bench/throughput.js';
import { sluiceWays } from '../bench/ways.js';

type Fault = 'none' | 'swallow' | 'double';

const agent = new Agent({ keepAlive: true });
/** What happens to the next request; then nothing does. */
let fault: Fault = 'none';
let deployment: Deployment;
const proxy = createServer((incoming, outgoing) => {
  const parts: Buffer[] = [];
  incoming.on('data', (part: Buffer) => parts.push(part));
  incoming.on('end', () => {
    const body = Buffer.concat(parts);
    const now = fault;
    fault = 'none';
    if (now === 'swallow') return void outgoing.end('{}');
    const pass = (answer: (status: number, text: string) => void) => {
      const headers = { 'content-type': 'application/json', 'content-length': body.length };
      const onward = send(`${deployment.url}${incoming.url}`, { method: 'POST', agent, headers }, (reply) => {
        let text = '';
        reply.setEncoding('utf8').on('data', (piece) => {
          text += piece;
        });
        reply.on('end', () => answer(reply.statusCode ?? 0, text));
      });
      onward.on('error', () => answer(502, ''));
      onward.end(body);
    };
    const reply = (status: number, text: string) => outgoing.writeHead(status).end(text);
    if (now === 'double') pass(() => pass(reply));
    else pass(reply);
  });
});

before(async () => {
  deployment = await startDeployment();
  await new Promise<void>((listening) => proxy.listen(0, '127.0.0.1', listening));
});
after(async () => {
  proxy.closeAllConnections();
  proxy.close();
  agent.destroy();
  await deployment?.stop();
});

/** Runs one way through the proxy, where `next` happens to one request after the warm-up. */
async function runThrough(name: string, next: Fault, parts: Partial<ThroughputOptions> = {}) {
  const way = sluiceWays.find((candidate) => candidate.name === name);
  assert.ok(way !== undefined);
  const [appId = ''] = await deployment.addEnvironments(1, way.limits);
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  // The measured part says so when it begins.
  const progress: Progress = {
    say: () => undefined,
    watch: () => {
      fault = next;
      return { end: () => undefined };
    },
  };
  const run = runThroughput({
    subject: { ...deploymentSubject(deployment), url },
    way,
    appId,
    seconds: 1,
    warmUpSeconds: 0.2,
    connections: 4,
    threads: 1,
    // Only where something is swallowed a run waits for so long.
    stallMs: next === 'swallow' ? 6_000 : 60_000,
    progress,
    ...parts,
  });
  return { appId, run };
}

for (const [name, parts] of [
  ['single', {}],
  ['bulk-10', {}],
  ['mixed', {}],
  ['collect', {}],
  ['single', { rate: 300 }],
] as const) {
  const how = `${name}${'rate' in parts ? ' at a fixed rate' : ''}`;

  test(`${how}: a run without a fault counts what is stored`, async () => {
    const { appId, run } = await runThrough(name, 'none', parts);
    const { records, cpuSum } = await run;
    const stored = await deployment.stored(appId);
    const all = (stored.events ?? 0) + (stored.user_properties ?? 0) + (stored.user_identities ?? 0);
    assert.ok(records > 0 && records <= all);
    assert.ok((cpuSum ?? 0) > 0);
  });

  test(`${how}: fails when an acknowledged request was swallowed`, { timeout: 180_000 }, async () => {
    const { run } = await runThrough(name, 'swallow', parts);
    await assert.rejects(run, (error: Error) => {
      assert.ok(error instanceof BenchError);
      assert.match(error.message, /^\d+ records were acknowledged, \d+ are stored$/);
      const [acknowledged, stored] = [...error.message.matchAll(/\d+/g)].map(Number) as [number, number];
      assert.ok(acknowledged > stored);
      return true;
    });
  });
}

test('single: fails when an acknowledged request was stored twice', async () => {
  const { run } = await runThrough('single', 'double');
  await assert.rejects(run, /^BenchError: acknowledged were (\d+) events|^Error: acknowledged were/);
});

test('fails when a row that was stored is gone, and when one id stands for two events', async () => {
  const { appId, run } = await runThrough('single', 'none');
  await run;
  const { events = 0, ids } = await deployment.stored(appId);
  assert.equal(events, ids);
  await assertStored(deployment, appId, { events });
  // By its value: a mutation asks a subquery again for every part, and gets another event each time.
  const [one] = await deployment.rows<{ event_id: string }>(
    `SELECT event_id FROM stored_events WHERE app_id = '${appId}' LIMIT 1`,
  );
  await deployment.rows(
    `ALTER TABLE stored_events DELETE WHERE app_id = '${appId}' AND event_id = '${one?.event_id}' SETTINGS mutations_sync = 1`,
  );
  await assert.rejects(assertStored(deployment, appId, { events }), BenchError);

  const columns = 'app_id, event_id, event, user_id, identity, session_id, time, properties, row_number';
  await deployment.rows(
    `INSERT INTO stored_events (${columns}, segment, commit_number, received_at)
      SELECT ${columns}, segment, commit_number, received_at FROM stored_events WHERE app_id = '${appId}' LIMIT 1`,
  );
  assert.equal((await deployment.stored(appId)).events, events);
  await assert.rejects(assertStored(deployment, appId, { events }), /the events under \d+ ids/);
});
