// `npm run soak -- [--minutes N]`: runs a whole private deployment at 60 % of its highest load with one fault per minute, and checks that
// nothing grows and that every acknowledged event is stored once. Writes test/soak/RESULTS.md.

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describeInWords, describeMachine } from '../../bench/machine.js';
import { type Trend, trendOf } from '../../bench/report/trend.js';
import { createEnvironments, unlimited } from '../harness/accounts.js';
import { findUnbalanced } from '../harness/books.js';
import { untilStored } from '../harness/ingestion.js';
import { readOptions } from '../harness/options.js';
import { withRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startRedis, startSluice } from '../harness/services.js';
import { startFaults } from './faults.js';
import { type SoakCheck, startSoakLoad } from './load.js';
import { type Samples, type SeriesName, series, startSampling } from './samples.js';

const resultsFile = fileURLToPath(new URL('../../../test/soak/RESULTS.md', import.meta.url));
const probe = new URL('heap-probe.js', import.meta.url).href;
const capacityMs = 10_000;
const share = 0.6;
const clients = 24;
const sampleEveryMs = 5_000;
const faultEveryMs = 60_000;

const values = readOptions('soak', { minutes: { type: 'string', default: '30' } });
const minutes = Number(values.minutes);
if (!/^\d{1,4}$/.test(values.minutes) || minutes < 2) {
  process.stderr.write('soak: --minutes must be a whole number, at least 2\n');
  process.exit(2);
}
// The exit handlers end the services and remove their data.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));

const withProbe = { NODE_OPTIONS: `--import=${probe}` };
// A Redis that syncs, as in production.
const redis = await startRedis();
const sluice = await startSluice({
  redis,
  apiProcesses: 2,
  workers: 2,
  // The smallest budget for remembered keys, so that these stop growing after a quarter of an hour.
  env: { JOB_LOCK_MS: '5000', CLAIM_BYTES_MAX: String(1024 ** 2) },
  apiEnv: withProbe,
  workerEnv: withProbe,
});
const [appId = '', capacityAppId = ''] = await createEnvironments(sluice, [unlimited, unlimited]);
const targets = () => sluice.api.map(({ baseUrl }) => baseUrl);

say(`measuring the highest load for ${capacityMs / 1000} s`);
const capacity = startSoakLoad({ targets, appId: capacityAppId, clients });
await pause(capacityMs);
await capacity.stop();
await untilStored(sluice, 300_000);
const before = await capacity.check(sluice);
if (before.acknowledged === 0 || before.lost + before.doubled + before.unexpected > 0) {
  throw new Error(`without any fault the events are not as promised: ${JSON.stringify(before)}`);
}
const rate = (capacity.requests / capacityMs) * 1000 * share;

const beganMs = Date.now();
say(`soaking for ${minutes} minutes at ${rate.toFixed()} requests/s`);
const stopSampling = startSampling(sluice, sampleEveryMs);
const load = startSoakLoad({ targets, appId, rate, clients });
const stopFaults = startFaults(sluice, faultEveryMs);
for (let minute = 1; minute <= minutes; minute += 1) {
  await pause(60_000);
  say(
    `minute ${minute}: ${load.acknowledgedEvents} events acknowledged, ${JSON.stringify(load.refused)} refused`,
  );
}
const faults = await stopFaults();
await load.stop();
const samples = await stopSampling();
await untilStored(sluice, 300_000);
const checked = await load.check(sluice);
const unbalanced = await withRedis(sluice, (client) => findUnbalanced(sluice, client, beganMs));
const trends = Object.fromEntries(
  Object.entries(series).map(([name, { floor }]) => [name, trendOf(samples[name as SeriesName], floor)]),
) as Record<SeriesName, Trend>;
const kept = checked.lost + checked.doubled + checked.unexpected + unbalanced.length === 0;
const flat = Object.values(trends).every((trend) => trend.flat);
writeFileSync(resultsFile, await report(sluice, samples, checked));
say(
  `${kept ? 'every event as promised' : 'EVENTS NOT AS PROMISED'}, ${flat ? 'all flat' : 'SOMETHING GROWS'}`,
);
await sluice.stop();
await redis.remove();
process.exit(kept && flat ? 0 : 1);

async function report(deployment: SluiceHandle, seen: Samples, check: SoakCheck): Promise<string> {
  const machine = await describeMachine(deployment);
  const counts = new Map<string, number>();
  for (const { what } of faults) counts.set(what, (counts.get(what) ?? 0) + 1);
  const kinds = [...counts].map(([what, times]) => `${what} (${times})`).join(', ');
  const table = Object.entries(trends).map(
    ([name, { median, last, perHour, growth, growthMax, flat: isFlat }]) => {
      const points = seen[name as SeriesName].length;
      const [m, l, p, g, x] = [median, last, perHour, growth, growthMax].map((value) => value.toFixed(1));
      return `| ${name} | ${points} | ${m} | ${l} | ${p} | ${g} | ${x} | ${isFlat ? 'flat' : '**grows**'} |`;
    },
  );
  const refused = Object.entries(load.refused).map(([status, times]) =>
    status === '0' ? `${times} without an answer` : `${times} with ${status}`,
  );
  return `# Soak: ${minutes} minutes with a fault a minute

Written by \`npm run soak -- --minutes ${minutes}\`. ${describeInWords(machine)}

Two API processes, two workers, Redis and ClickHouse at ${rate.toFixed()} requests/s, ${share * 100} % of what ${clients} clients reached
before. One request in four carries 20 events; one in eight has idempotency keys and is sent again until it is
answered. Faults: ${kinds}; each process was started again at once.

**${kept ? 'Every event is as promised' : 'Events are not as promised'}; ${flat ? 'nothing grows' : 'something grows'}.**

| events | |
| --- | ---: |
| acknowledged | ${check.acknowledged} |
| of these lost | ${check.lost} |
| doubled | ${check.doubled} |
| stored though refused | ${check.unexpected} |
| unknown outcome | ${check.unknown} |
| of these stored | ${check.unknownStored} |

Requests that were not acknowledged: ${refused.join(', ') || 'none'}.

The slope is the median of the slopes between all pairs of points (Theil and Sen) after the first fifth of the run. A
series is flat when its growth over that time is at most a tenth of its median, or a floor of its own. The API
process and the worker that are looked at were never killed; Redis and ClickHouse were.

| series | points | median | last | slope an hour | growth | may grow | |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
${table.join('\n')}
`;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function say(line: string): void {
  process.stdout.write(`soak: ${line}\n`);
}
