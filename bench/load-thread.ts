// A thread of the generator: says when it is ready, sends when told, answers with what came of it.

import { parentPort, workerData } from 'node:worker_threads';
import type { ThreadData } from './closed-loop.js';
import { prepareConnections } from './load-connections.js';

const { load, bodies, answers, index } = workerData as ThreadData;
// A copy of a Buffer is a plain array of bytes.
const own = bodies.map((list) =>
  list.map((body) => Buffer.from(body.buffer, body.byteOffset, body.byteLength)),
);
const send = prepareConnections({ ...load, bodies: own }, new Int32Array(answers), index);

parentPort?.once('message', () => {
  void send().then((result) => parentPort?.postMessage(result));
});
parentPort?.postMessage('ready');
