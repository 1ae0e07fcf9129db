// Load at a fixed rate: a request is due at its time whether or not earlier ones were answered, so a pause of
// the service shows in the latency of everything that was due meanwhile. A small HTTP client of its own: at
// 10,000 requests a second a general one would take the processor that the service needs.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { BenchError } from './failure.js';

export type OpenLoopOptions = {
  readonly url: string;
  readonly bodies: readonly Buffer[];
  readonly ratePerSecond: number;
  readonly requests: number;
  /** Requests under way at most; what is due beyond that waits, and its latency grows. */
  readonly connections: number;
};

export type OpenLoopResult = {
  readonly seconds: number;
  readonly generatorCpu: number;
  /** From the moment a request was due, in ms, ascending. Falling behind by the generator is in it. */
  readonly latenciesSinceDue: Float64Array;
  /** From the write to the answer, in ms, ascending. */
  readonly latenciesSinceSent: Float64Array;
};

type Connection = { readonly socket: Socket; request: number; received: string };

/** Settles when all requests were answered 200 `{}`; rejects at the first one that was not. */
export async function sendOpenLoop(options: OpenLoopOptions): Promise<OpenLoopResult> {
  const { ratePerSecond, requests } = options;
  const texts = options.bodies.map((body) => requestText(options.url, body));
  const sinceDue = new Float64Array(requests);
  const sinceSent = new Float64Array(requests);
  const sentAt = new Float64Array(requests);
  let finish: () => void = () => undefined;
  let fail: (error: Error) => void = () => undefined;
  const finished = new Promise<void>((resolve, reject) => {
    finish = resolve;
    fail = reject;
  });

  let answers = 0;
  const all = await Promise.all(
    Array.from({ length: options.connections }, async () => {
      const connection: Connection = { socket: await open(options.url), request: -1, received: '' };
      const { socket } = connection;
      socket.setEncoding('latin1');
      socket.on('data', (text) => receive(connection, String(text)));
      socket.on('error', fail);
      socket.on('close', () => fail(new BenchError('the service closed a connection')));
      return connection;
    }),
  );
  const idle = [...all];

  const startedAt = performance.now();
  const dueAt = (request: number) => startedAt + (request * 1000) / ratePerSecond;
  const cpuBefore = process.cpuUsage();
  let next = 0;

  function sendDue(): void {
    const now = performance.now();
    while (next < requests && dueAt(next) <= now) {
      const connection = idle.pop();
      if (connection === undefined) return;
      connection.request = next;
      sentAt[next] = performance.now();
      connection.socket.write(texts[next % texts.length] as Buffer);
      next += 1;
    }
  }

  function receive(connection: Connection, text: string): void {
    connection.received += text;
    const { received, request } = connection;
    if (!received.endsWith('\r\n\r\n{}')) {
      if (!received.startsWith('HTTP/1.1 200'.slice(0, received.length)) || received.length > 1000) {
        fail(new BenchError(`a request was answered: ${received.slice(0, 500)}`));
      }
      return;
    }
    const now = performance.now();
    sinceDue[request] = now - dueAt(request);
    sinceSent[request] = now - (sentAt[request] as number);
    connection.received = '';
    idle.push(connection);
    answers += 1;
    if (answers === requests) finish();
    else if (next < requests && dueAt(next) <= now) sendDue();
  }

  const timer = setInterval(sendDue, 1);
  try {
    await finished;
  } finally {
    clearInterval(timer);
    for (const { socket } of all) socket.removeAllListeners('close').destroy();
  }
  const { user, system } = process.cpuUsage(cpuBefore);
  return {
    seconds: (performance.now() - startedAt) / 1000,
    generatorCpu: user + system,
    latenciesSinceDue: sinceDue.sort(),
    latenciesSinceSent: sinceSent.sort(),
  };
}

async function open(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), noDelay: true });
  await once(socket, 'connect');
  return socket;
}

function requestText(url: string, body: Buffer): Buffer {
  const head = [
    'POST /api/track HTTP/1.1',
    `Host: ${new URL(url).host}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ];
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body]);
}
