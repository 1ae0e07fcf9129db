// A thread of the generator. The main thread gives it one part of a load after another: it makes the first bodies, reports that it is
// ready, sends on command, and reports each second and the end.

import { parentPort } from 'node:worker_threads';
import { prepareSender, type SenderPart } from './sender.js';

let part: { readonly send: ReturnType<typeof prepareSender>; readonly stop: AbortController } | undefined;
parentPort?.on('message', async (message: SenderPart | 'start' | 'stop') => {
  if (message === 'stop') part?.stop.abort();
  else if (message === 'start') {
    await part?.send((second) => parentPort?.postMessage(second), part.stop.signal);
    part = undefined;
    parentPort?.postMessage('ended');
  } else {
    part = { send: prepareSender(message), stop: new AbortController() };
    parentPort?.postMessage('ready');
  }
});
