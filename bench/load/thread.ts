// A thread of the generator: tells the main thread when it is ready, sends its part on command, and reports each second.

import { parentPort, workerData } from 'node:worker_threads';
import { prepareSender, type SenderPart } from './sender.js';

const send = prepareSender(workerData as SenderPart);
const stop = new AbortController();
parentPort?.once('message', async () => {
  parentPort?.once('message', () => stop.abort());
  await send((second) => parentPort?.postMessage(second), stop.signal);
  parentPort?.close();
});
parentPort?.postMessage('ready');
