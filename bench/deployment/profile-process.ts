// Preloaded into a process (`node --import`): records a V8 CPU profile of its whole life and writes it into the folder
// PROFILE_DIR when the process ends. Node's own --cpu-prof cannot be given through NODE_OPTIONS.

import { mkdirSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector';
import { basename, dirname, join } from 'node:path';

const samplingIntervalMicroseconds = 500;

const folder = process.env.PROFILE_DIR ?? '.';
const program = process.argv[1] ?? '';
const session = new Session();
session.connect();
session.post('Profiler.enable');
session.post('Profiler.setSamplingInterval', { interval: samplingIntervalMicroseconds });
session.post('Profiler.start');
process.once('exit', () => {
  // The callback is called before `post` returns.
  session.post('Profiler.stop', (error, result) => {
    if (error !== null) return;
    mkdirSync(folder, { recursive: true });
    const name = `${basename(dirname(program))}-${process.pid}.cpuprofile`;
    writeFileSync(join(folder, name), JSON.stringify(result.profile));
  });
});
