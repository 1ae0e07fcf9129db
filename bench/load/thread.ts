// A thread of the generator: reports when it is ready, sends on command, and replies with the results.

import { parentPort, workerData } from 'node:worker_threads';
import type { ThreadData } from './closed-loop.js';
import { prepareConnections } from './connections.js';

const { load, bodies, answers, index } = workerData as ThreadData;
// A copied Buffer arrives as a plain array of bytes.
const own = bodies.map((list) =>
  list.map((body) => Buffer.from(body.buffer, body.byteOffset, body.byteLength)),
);
const send = prepareConnections({ ...load, bodies: own }, new Int32Array(answers), index);

parentPort?.once('message', () => {
  void send().then((result) => parentPort?.postMessage(result));
});
parentPort?.postMessage('ready');
