// Preloaded into a process by `node --import`: records a V8 CPU profile from start to exit and writes it into the folder
// PROFILE_DIR. NODE_OPTIONS does not take Node's own --cpu-prof.

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
  // `post` calls back before it returns.
  session.post('Profiler.stop', (error, result) => {
    if (error !== null) return;
    mkdirSync(folder, { recursive: true });
    const name = `${basename(dirname(program))}-${process.pid}.cpuprofile`;
    writeFileSync(join(folder, name), JSON.stringify(result.profile));
  });
});
