// How many events per second does one process send with the library for servers, on the same machine as the service? It calls
// `track` as fast as the library accepts it. Afterwards ClickHouse must hold every event once.

import { fileURLToPath } from 'node:url';
import type { Context } from '../context.js';
import { type ProgramRun, runProgram } from '../deployment/program.js';

/** Events before the clock starts: V8 compiles the code that both sides run often. */
const warmUpEvents = 50_000;
const program = fileURLToPath(new URL('./producer-process.js', import.meta.url));

/** `producerBytes`: the most memory that the producer used. */
export type ProducerRun = ProgramRun & { readonly producerBytes: number };

export async function runProducer({ deployment, options }: Context): Promise<ProducerRun> {
  const [appId = ''] = await deployment.addEnvironments(1, 'none');
  const produce = (first: number, events: number) => {
    const args = [program, deployment.url, appId, String(first), String(events)];
    return runProgram(deployment, appId, args, events, first);
  };
  await produce(0, warmUpEvents);
  const run = await produce(warmUpEvents, options.producerEvents);
  return { ...run, producerBytes: Number(run.output) };
}
