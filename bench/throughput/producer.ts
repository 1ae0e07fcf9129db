// How many events per second does one process send that uses the library for servers, with the service beside it? It
// calls `track` as fast as the library lets it; afterwards ClickHouse must hold every event once.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { attachDeployment, type CpuTimes, startDeployment } from '../deployment/deployment.js';
import { machineMicroseconds, othersShare } from '../deployment/processes.js';
import { assertStored, countRecords, plus, type Stored, sumOf, untilCounted } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { figure } from '../figures.js';
import type { Options } from '../options.js';
import type { Progress } from '../progress.js';
import { cpuBetween, perRecord, sumCpu } from './measure.js';

export type ProducerResult = {
  readonly events: number;
  /** From the first call to the last answer. */
  readonly acknowledgedSeconds: number;
  readonly storedSeconds: number;
  /** µs of CPU per event; empty if the deployment is not the bench's own. */
  readonly cpu: CpuTimes;
  /** The same for the producer, including making the events. */
  readonly producerCpu: number;
  /** The most bytes that the producer occupied. */
  readonly producerBytes: number;
  /** The share of the machine's CPU time that other programs used; absent if the deployment is not the bench's own. */
  readonly othersShare?: number;
};

/** What the producer prints. */
type Sent = { readonly seconds: number; readonly cpuMicroseconds: number; readonly bytes: number };

/** Events before the clock starts, since V8 compiles what both sides run often. */
const warmUpEvents = 50_000;

/** Rejects unless ClickHouse holds each event once. */
export async function runProducer(options: Options, progress: Progress): Promise<ProducerResult> {
  const { elsewhere, producerEvents: events } = options;
  const deployment = elsewhere === undefined ? await startDeployment(options) : attachDeployment(elsewhere);
  try {
    const [appId = ''] = await deployment.addEnvironments(1, 'none');
    const { ids: _, ...before }: Stored = await deployment.stored(appId);
    await produce(deployment.url, appId, 0, warmUpEvents);
    const warm = plus(before, { events: warmUpEvents });
    await untilCounted(() => countRecords(deployment, appId), sumOf(warm));

    const startedAt = performance.now();
    const machineBefore = machineMicroseconds();
    const cpuBefore = deployment.cpu();
    const sent = await produce(deployment.url, appId, warmUpEvents, events);
    const expected = plus(warm, { events });
    await untilCounted(() => countRecords(deployment, appId), sumOf(expected));
    const storedSeconds = (performance.now() - startedAt) / 1000;
    const cpu = cpuBetween(cpuBefore, deployment.cpu());
    const used = sumCpu(cpu) + sent.cpuMicroseconds;
    const others = othersShare(machineBefore, machineMicroseconds(), used);
    await assertStored(deployment, appId, expected);
    progress.say(`producer: ${figure(events / sent.seconds)} events a second acknowledged`);
    return {
      events,
      acknowledgedSeconds: sent.seconds,
      storedSeconds,
      cpu: perRecord(cpu, events),
      producerCpu: sent.cpuMicroseconds / events,
      producerBytes: sent.bytes,
      ...(deployment.own === undefined ? {} : { othersShare: others }),
    };
  } finally {
    await deployment.stop();
  }
}

async function produce(url: string, appId: string, first: number, events: number): Promise<Sent> {
  const program = fileURLToPath(new URL('./producer-process.js', import.meta.url));
  const args = [program, url, appId, String(first), String(events)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new BenchError(`the producer ended with ${code}`);
  return JSON.parse(output) as Sent;
}
