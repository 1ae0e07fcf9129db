// The bench against a deployment whose API is behind a server that loses or doubles one acknowledged event: such a run
// must fail.

import assert from 'node:assert/strict';
import { Agent, request as send } from 'node:http';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { type Deployment, processNames, startDeployment } from '../../bench/deployment/deployment.js';
import { assertStored } from '../../bench/deployment/stored.js';
import { BenchError } from '../../bench/failure.js';
import type { Progress } from '../../bench/progress.js';
import { runThroughput, type ThroughputOptions } from '../../bench/throughput/throughput.js';
import { sluiceWays } from '../../bench/throughput/ways.js';
import { bodyServer, listen } from '../harness/listen.js';

type Fault = 'none' | 'swallow' | 'double';

const agent = new Agent({ keepAlive: true });
/** What happens to the next request only. */
let fault: Fault = 'none';
let deployment: Deployment;
const proxy = bodyServer((incoming, outgoing, body) => {
  const now = fault;
  fault = 'none';
  if (now === 'swallow') return void outgoing.end('{}');
  const pass = (answer: (status: number, text: string) => void) => {
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const onward = send(
      `${deployment.url}${incoming.url}`,
      { method: 'POST', agent, headers },
      async (reply) => answer(reply.statusCode ?? 0, await text(reply)),
    );
    onward.on('error', () => answer(502, ''));
    onward.end(body);
  };
  const reply = (status: number, its: string) => outgoing.writeHead(status).end(its);
  if (now === 'double') pass(() => pass(reply));
  else pass(reply);
});

let front: Awaited<ReturnType<typeof listen>>;

before(async () => {
  deployment = await startDeployment();
  front = await listen(proxy);
});
after(async () => {
  front?.stop();
  agent.destroy();
  await deployment?.stop();
});

/** The API's system time over all runs, since the kernel counts in steps of 10 ms and one run may take less. */
let systemMicroseconds = 0;

/** Runs one way through the proxy, where `next` happens to one request after the warm-up. */
async function runThrough(name: string, next: Fault, parts: Partial<ThroughputOptions> = {}) {
  const way = sluiceWays.find((candidate) => candidate.name === name);
  assert.ok(way !== undefined);
  const [appId = ''] = await deployment.addEnvironments(1, way.limits);
  // The measured part of the run calls `during` when it begins.
  const progress: Progress = {
    say: () => undefined,
    during: (_what, _text, work) => {
      fault = next;
      return work();
    },
  };
  const run = runThroughput({
    subject: { ...deployment, url: front.url },
    way,
    appIds: [appId],
    seconds: 0.3,
    warmUpSeconds: 0.1,
    connections: 4,
    threads: 1,
    // Only a run that lost a request waits this long.
    stallMs: next === 'swallow' ? 6_000 : 60_000,
    progress,
    ...parts,
  });
  return { appId, run: run.then((result) => result.run) };
}

for (const [name, parts] of [
  ['bulk-10', {}],
  ['collect', {}],
  ['single', { rate: 300 }],
  ['single-keys', { byWrk: true }],
] as const) {
  const how = `${name}${'rate' in parts ? ' at a fixed rate' : ''}${'byWrk' in parts ? ' by wrk' : ''}`;

  test(`${how}: a run without a fault counts what is stored`, async () => {
    const { appId, run } = await runThrough(name, 'none', parts);
    const { records, cpuSum, cpu, systemCpu, commits, limit } = await run;
    const stored = await deployment.stored(appId);
    const all = (stored.events ?? 0) + (stored.user_properties ?? 0) + (stored.user_identities ?? 0);
    assert.ok(records > 0 && records <= all);
    assert.ok(cpuSum > 0);
    // A slow machine does not reach a rate in so short a run.
    assert.ok('rate' in parts || limit !== 'rate');
    for (const process of processNames) assert.ok((systemCpu?.[process] ?? 0) <= (cpu[process] ?? 0));
    systemMicroseconds += systemCpu?.api ?? 0;
    assert.ok(commits !== undefined && commits.count > 0 && commits.count <= commits.records);
    assert.equal(commits.records, records);
  });

  test(`${how}: fails when an acknowledged request was lost`, { timeout: 180_000 }, async () => {
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

test('the kernel’s part of the API’s CPU time is counted', async () => {
  for (let more = 50; systemMicroseconds === 0 && more > 0; more -= 1) {
    const { run } = await runThrough('single', 'none');
    systemMicroseconds += (await run).systemCpu?.api ?? 0;
  }
  assert.ok(systemMicroseconds > 0);
});

test('single: fails when an acknowledged request was stored twice', async () => {
  const { run } = await runThrough('single', 'double');
  await assert.rejects(run, /^BenchError: acknowledged were (\d+) events|^Error: acknowledged were/);
});

test('fails when a stored row is gone, and when two events have one id', async () => {
  const { appId, run } = await runThrough('single', 'none');
  await run;
  const { events = 0, ids } = await deployment.stored(appId);
  assert.equal(events, ids);
  await assertStored(deployment, appId, { events });
  // The id is a value, since a mutation runs a subquery again for every part and would get another event each time.
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
