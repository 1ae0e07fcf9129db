// How often processes compare the stores while ClickHouse is slow: their queries must not keep it slow.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { witnesses } from '../../src/tuning.js';
import { type ClickHouseGate, startClickHouseGate } from '../harness/clickhouse-gate.js';
import {
  type ClickHouseHandle,
  type SluiceHandle,
  startClickHouse,
  startSluice,
} from '../harness/services.js';
import { until } from '../harness/wait.js';

let clickhouse: ClickHouseHandle;
let gate: ClickHouseGate;
let sluice: SluiceHandle;

before(async () => {
  clickhouse = await startClickHouse();
  gate = await startClickHouseGate(clickhouse.testerUrl);
  sluice = await startSluice({ clickhouse, workerEnv: { CLICKHOUSE_URL: gate.url } });
});

after(async () => {
  await sluice?.stop();
  await gate?.close();
  await clickhouse?.remove();
});

test('asks a ClickHouse that answers too late no more often, and makes it end statements that nobody waits for', async () => {
  const heldMs = 20_000;
  gate.hold(({ sql }) => /\bwitness\b/.test(sql));
  await until(async () => gate.held.length > 0, 'the stores are compared');
  await new Promise((resolve) => setTimeout(resolve, heldMs));
  const asked = [...gate.held];
  gate.pass();
  const roundsMs = witnesses.roundsPerCopy * witnesses.everyMs;
  assert.ok(asked.length <= 1 + heldMs / roundsMs, `${asked.length} statements`);
  for (const { parameters } of asked)
    assert.equal(Number(parameters.get('max_execution_time')), witnesses.clickhouseMsMax / 1000);
});
