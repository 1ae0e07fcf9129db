// One autocannon with some connections: what a thread of the generator runs.

import autocannon from 'autocannon';
export type ClosedLoopOptions = {
  readonly url: string;
  /** /api/track by default. */
  readonly path?: string;
  /** The bodies of each connection, sent in turn, repeatedly. */
  readonly bodies: readonly (readonly Buffer[])[];
  readonly requests: number;
  /** Threads that send; by default 1, the calling thread. */
  readonly threads?: number;
  /** Statuses of expected answers; 200 by default. */
  readonly statuses?: readonly number[];
  /** The whole body of every answer; `{}` by default, null if it does not matter. */
  readonly expectedBody?: string | null;
  /** Keeps the status of every answer. */
  readonly keepsStatuses?: boolean;
  /** Called about once per second with the number of answers so far. */
  readonly onProgress?: (answers: number) => void;
};

export type ConnectionsResult = {
  readonly answers: number;
  /** Lost connections, silence, and answers with an unexpected body. */
  readonly faults: number;
  /** The beginning of the first unexpected body. */
  readonly fault: string;
  /** Unexpected answers by status. */
  readonly refused: readonly (readonly [number, number])[];
  readonly statuses: readonly Uint16Array[];
  /** When the first request was sent and the last answer came, and the CPU time of the process at both moments. */
  readonly start: Moment;
  readonly end: Moment;
};

/** Time in ms by a clock that all threads share, and CPU time in µs that the process has used. */
export type Moment = { readonly ms: number; readonly cpu: number };

/** If nothing of an answer comes for this long, the request counts as unanswered. */
const answerSecondsMax = 30;
const faultCharsMax = 300;

/**
 * Prepares the connections. The returned function sends, counts answers in `answers[index]`, and settles when all
 * requests are answered or the connections have given up.
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
      // The last answer decides: the library itself ends at its next full second.
      const instance = autocannon(given, end);
      // By then it has built all requests of all connections, and sent none.
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
