// How many events per second does one process send that uses the library for servers, with the service beside it? It
// calls `track` as fast as the library lets it; afterwards ClickHouse must hold every event once.

import { fileURLToPath } from 'node:url';
import type { Context } from '../context.js';
import { type ProgramRun, runProgram } from '../deployment/program.js';

/** Events before the clock starts, since V8 compiles what both sides run often. */
const warmUpEvents = 50_000;
const program = fileURLToPath(new URL('./producer-process.js', import.meta.url));

/** Settles with the figures and the most bytes that the producer occupied. */
export async function runProducer({
  deployment,
  options,
}: Context): Promise<ProgramRun & { readonly producerBytes: number }> {
  const [appId = ''] = await deployment.addEnvironments(1, 'none');
  const produce = (first: number, events: number) => {
    const args = [program, deployment.url, appId, String(first), String(events)];
    return runProgram(deployment, appId, args, events, first);
  };
  await produce(0, warmUpEvents);
  const run = await produce(warmUpEvents, options.producerEvents);
  return { ...run, producerBytes: Number(run.output) };
}
