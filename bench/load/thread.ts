// A thread of the generator: says that it is ready, sends its part when it is told to, and gives each second to the main
// thread.

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
