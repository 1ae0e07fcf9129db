// A thread of the generator: sends its part and gives each second to the main thread.

import { parentPort, workerData } from 'node:worker_threads';
import { sluiceWays } from '../throughput/ways.js';
import { bodySource, readPayloads } from './bodies.js';
import { sendLoad } from './sender.js';
import type { ThreadPart } from './threads.js';

const part = workerData as ThreadPart;
const way = sluiceWays.find(({ name }) => name === part.way);
if (way === undefined) throw new Error(`there is no way ${part.way}`);
const { payloads, ...load } = part;
const nextBody = bodySource({
  ...load,
  way,
  payloads: payloads === undefined ? undefined : readPayloads(payloads),
});
await sendLoad({ ...load, path: way.path, answer: way.answer, nextBody }, (second) =>
  parentPort?.postMessage(second),
);
