// One autocannon with some connections: what a thread of the generator runs.

import autocannon from 'autocannon';
import type { ClosedLoopOptions } from './closed-loop.js';

export type ConnectionsResult = {
  readonly answers: number;
  /** Lost connections, silence, and answers with another body than expected. */
  readonly faults: number;
  /** The beginning of the first answer with another body than expected. */
  readonly fault: string;
  /** Answers by status that should not have been. */
  readonly refused: readonly (readonly [number, number])[];
  readonly statuses: readonly Uint16Array[];
  /** When the first request was sent and the last answer came, and the CPU time of the process at both. */
  readonly start: Moment;
  readonly end: Moment;
};

/** Time in ms by a clock that all threads share, and CPU time in µs that the process has used. */
export type Moment = { readonly ms: number; readonly cpu: number };

/** Without this much of an answer a request counts as unanswered. */
const answerSecondsMax = 30;
const faultCharsMax = 300;

/**
 * Prepares the connections; the function that is returned sends, counting answers in `answers[index]`, and
 * settles when all requests are answered or the connections are done without.
 */
export function prepareConnections(
  options: ClosedLoopOptions,
  counters: Int32Array,
  index: number,
): () => Promise<ConnectionsResult> {
  const { url, path = '/api/track', bodies, requests, expectedBody = '{}' } = options;
  const accepted = new Set(options.statuses ?? [200]);
  const refused = new Map<number, number>();
  const kept = options.keepsStatuses
    ? bodies.map(() => new Uint16Array(Math.ceil(requests / bodies.length)))
    : [];
  const connectionOf = new Map<object, { readonly number: number; answers: number }>();
  let answers = 0;
  let faults = 0;
  let firstFault = '';

  return () =>
    new Promise((resolve) => {
      let start = moment();
      const end = () =>
        resolve({
          answers,
          faults,
          fault: firstFault,
          refused: [...refused],
          statuses: kept,
          start,
          end: moment(),
        });
      let connections = 0;
      const given: autocannon.Options = {
        url: `${url}${path}`,
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        connections: bodies.length,
        pipelining: 1,
        amount: requests,
        timeout: answerSecondsMax,
        ...(expectedBody === null ? {} : { expectBody: expectedBody }),
        setupClient: (client) => {
          const number = connections++;
          connectionOf.set(client, { number, answers: 0 });
          client.setRequests((bodies[number] ?? []).map((body) => ({ body })));
        },
      };
      // The last answer is what counts: the library itself ends on its next full second.
      const instance = autocannon(given, end);
      // By then it has made all requests of all connections, and sent none.
      instance.on('start', () => {
        start = moment();
      });
      instance.on('response', (client, status) => {
        answers += 1;
        counters[index] = answers;
        if (!accepted.has(status)) refused.set(status, (refused.get(status) ?? 0) + 1);
        if (options.keepsStatuses) {
          const connection = connectionOf.get(client);
          const list = kept[connection?.number ?? -1];
          if (connection !== undefined && list !== undefined) list[connection.answers++] = status;
        }
        if (answers === requests) setImmediate(end);
      });
      for (const fault of ['reqError', 'reqMismatch'] as const) {
        (instance as NodeJS.EventEmitter).on(fault, (what: unknown) => {
          faults += 1;
          if (faults === 1) firstFault = String(what).slice(0, faultCharsMax);
        });
      }
    });
}

function moment(): Moment {
  const { user, system } = process.cpuUsage();
  return { ms: performance.timeOrigin + performance.now(), cpu: user + system };
}
