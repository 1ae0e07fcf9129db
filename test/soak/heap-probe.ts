// NODE_OPTIONS loads this into the processes under test. On SIGUSR2 it collects all garbage and writes the size of the remaining heap to
// stderr, as a line of JSON.

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

process.on('SIGUSR2', () => {
  collect();
  const heapMib = process.memoryUsage().heapUsed / 1024 ** 2;
  process.stderr.write(`${JSON.stringify({ heapMib })}\n`);
});
