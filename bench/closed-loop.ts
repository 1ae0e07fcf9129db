// Load as fast as the service answers: every connection sends its next request when the last one is answered
// (autocannon, no pipelining). Finds the highest rate. Latencies under it would
// only tell the number of connections, so none are taken.

import autocannon from 'autocannon';
import { BenchError } from './failure.js';

export type ClosedLoopOptions = {
  readonly url: string;
  /** The bodies of each connection, sent in turn and over again. */
  readonly bodies: readonly (readonly Buffer[])[];
  readonly requests: number;
};

export type ClosedLoopResult = {
  /** From the first request to the last answer. */
  readonly seconds: number;
  /** CPU time in µs that this process used meanwhile. */
  readonly generatorCpu: number;
};

/** Settles when all requests were answered 200 `{}`; rejects when one was not. */
export async function sendClosedLoop({
  url,
  bodies,
  requests,
}: ClosedLoopOptions): Promise<ClosedLoopResult> {
  const statuses = new Map<number, number>();
  let answers = 0;
  let faults = 0;
  let connection = 0;
  let answered: () => void = () => undefined;
  const allAnswered = new Promise<void>((resolve) => {
    answered = resolve;
  });

  let ended: () => void = () => undefined;
  const allEnded = new Promise<void>((resolve) => {
    ended = resolve;
  });
  const options: autocannon.Options = {
    url: `${url}/api/track`,
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    connections: bodies.length,
    pipelining: 1,
    amount: requests,
    timeout: 30,
    expectBody: '{}',
    setupClient: (client) => {
      client.setRequests((bodies[connection++] ?? []).map((body) => ({ body })));
    },
  };
  const instance = autocannon(options, ended);
  let startedAt = performance.now();
  let cpuBefore = process.cpuUsage();
  instance.on('start', () => {
    startedAt = performance.now();
    cpuBefore = process.cpuUsage();
  });
  instance.on('response', (_client, status) => {
    answers += 1;
    if (status !== 200) statuses.set(status, (statuses.get(status) ?? 0) + 1);
    if (answers === requests) answered();
  });
  for (const fault of ['reqError', 'reqMismatch'] as const) {
    (instance as NodeJS.EventEmitter).on(fault, () => {
      faults += 1;
    });
  }
  // The last answer is what counts: the library itself ends on its next full second.
  await Promise.race([allAnswered, allEnded]);
  const seconds = (performance.now() - startedAt) / 1000;
  const { user, system } = process.cpuUsage(cpuBefore);
  if (answers < requests || faults > 0 || statuses.size > 0) {
    const refused = [...statuses].map(([status, count]) => `${count} × ${status}`).join(', ');
    throw new BenchError(
      `${answers} of ${requests} requests were answered, ${faults} not as they should; ${refused || 'all 200'}`,
    );
  }
  return { seconds, generatorCpu: user + system };
}
