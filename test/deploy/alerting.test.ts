// deploy/prometheus with a real Prometheus and a real Alertmanager: faults of a deployment reach the person on call.

import assert from 'node:assert/strict';
import { truncateSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { send } from '../harness/deletion.js';
import { bodyServer, listen } from '../harness/listen.js';
import { until } from '../harness/wait.js';
import { startAlerting } from '../support/alerting.js';
import { ownSluice } from '../support/sluice.js';

type Posted = {
  readonly receiver: string;
  readonly status: 'firing' | 'resolved';
  readonly alerts: readonly {
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations: Readonly<Record<string, string>>;
  }[];
};

const posted: Posted[] = [];

const sluice = await ownSluice();
const receiver = bodyServer((_, response, body) => {
  posted.push(JSON.parse(body.toString()) as Posted);
  response.end();
});
const { url, stop } = await listen(receiver);
const alerting = await startAlerting({
  targets: { 'sluice-api': [new URL(sluice.adminUrl).host], 'sluice-worker': [] },
  receivers: { now: url, day: url, log: url },
});

after(async () => {
  await alerting.stop();
  stop();
});

async function firing(): Promise<string[]> {
  const alerts = await alerting.query('ALERTS{alertstate="firing"}');
  return alerts.map(({ metric }) => String(metric.alertname)).sort();
}

async function untilPosted(name: string, status: 'firing' | 'resolved'): Promise<Posted> {
  return until(
    async () =>
      posted.find(
        (each) => each.status === status && each.alerts.some(({ labels }) => labels.alertname === name),
      ),
    { deadlineMs: 180_000, what: `Alertmanager posts that ${name} is ${status}` },
  );
}

test('a healthy deployment raises no alert, and shows its figures', async () => {
  await send(sluice, '/api/track', { app_id: sluice.appId, event: 'Seen', identity: 'ada' });
  const shown = [
    'sluice:request_seconds:p99_5m{endpoint="/api/track"} > 0',
    'sluice_process_cpu_seconds_total{process="api"} > 0',
    'sluice_process_cpu_seconds_total{process="worker"} > 0',
    'sluice_process_memory_bytes{process="worker"} > 1e7',
    'sluice_redis_memory_bytes > 1e5',
    'sluice_redis_append_only_file_ok == 1',
    'sluice_clickhouse_disk_bytes > sluice_clickhouse_disk_free_bytes',
    'sluice_workers_ticking == 1',
    'sluice:backlog_bytes:limit == 2147483648',
    'sluice_process_event_loop_lag_seconds < 1',
  ];
  let at = 0;
  for (const expression of shown) {
    await until(
      async () => {
        // A rate needs requests that come between two scrapes.
        at += 1;
        await send(sluice, '/api/track', { app_id: sluice.appId, event: 'Seen', identity: `${at}` });
        return (await alerting.query(expression)).length > 0;
      },
      { deadlineMs: 180_000, what: expression },
    );
  }
  await until(async () => (await firing()).length === 0, { deadlineMs: 180_000, what: 'nothing is raised' });
});

test('when all workers are gone, the alert fires, and resolves when they are back', async () => {
  await sluice.workers[0]?.kill9();
  const posting = await untilPosted('SluiceNoWorker', 'firing');
  assert.equal(posting.receiver, 'now');
  const alert = posting.alerts.find(({ labels }) => labels.alertname === 'SluiceNoWorker');
  assert.equal(alert?.labels.severity, 'critical');
  assert.equal(alert?.annotations.runbook, 'RUNBOOK.md#sluicenoworker');
  await sluice.workers[0]?.restart();
  await untilPosted('SluiceNoWorker', 'resolved');
});

test('while ClickHouse is away the metrics answer, without its disk', async () => {
  await sluice.clickhouse.kill9();
  // While a busy machine answers no scrape in time, nothing at all is shown.
  await until(
    async () =>
      (await alerting.query('sluice_clickhouse_disk_bytes > 0')).length === 0 &&
      (await alerting.query('sluice_workers_ticking')).length === 1,
    { deadlineMs: 180_000, what: 'all but the disk is shown' },
  );
  await sluice.clickhouse.restart();
});

test('when Redis is away, the alert about it fires, but no alert about the consequences', async () => {
  await sluice.redis.kill9();
  await untilPosted('SluiceStateMissing', 'firing');
  // Such alerts would fire too without the rules of deploy/prometheus/alertmanager.yml.
  const followed = posted.flatMap(({ alerts }) => alerts.map(({ labels }) => labels.alertname));
  assert.ok(!followed.includes('SluiceCommitsRepeated'));
  await sluice.redis.restart();
  await untilPosted('SluiceStateMissing', 'resolved');
});

test('an alert and readiness report a part that ClickHouse has set aside', async () => {
  const { clickhouse } = sluice;
  const part = await until(
    async () => {
      const [found] = await sluice.rows<{ path: string }>(
        "SELECT path FROM system.parts WHERE database = currentDatabase() AND table = 'stored_events' AND active LIMIT 1",
      );
      return found?.path;
    },
    { deadlineMs: 180_000, what: 'something is stored' },
  );
  await clickhouse.kill9();
  truncateSync(join(part, 'data.bin'), 10);
  await clickhouse.restart();
  const posting = await untilPosted('SluicePartsSetAside', 'firing');
  assert.equal(posting.receiver, 'now');
  const { missing } = (await (await fetch(`${sluice.baseUrl}/health/ready`)).json()) as { missing: string[] };
  assert.deepEqual(missing, [
    'ClickHouse server 0 has set aside 1 part of its tables, and their rows are missing',
  ]);
});
