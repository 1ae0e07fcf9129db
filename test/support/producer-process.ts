// A process that records numbered events and a user's properties in a spool until it is killed, and notes in a file which of them the
// library has promised to keep. With `--drain` it sends what is in the spool and ends.

import { closeSync, openSync, writeSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { createSluice } from '../../src/libraries/producer/index.js';

const { values } = parseArgs({
  options: {
    url: { type: 'string', default: '' },
    'app-id': { type: 'string', default: '' },
    spool: { type: 'string', default: '' },
    kept: { type: 'string', default: '' },
    first: { type: 'string', default: '0' },
    drain: { type: 'boolean', default: false },
  },
});

/** How many events are recorded before their promises are awaited together. */
const group = 40;

const sluice = createSluice({
  appId: values['app-id'],
  baseUrl: values.url,
  spoolFolder: values.spool,
  // Few, so that most waiting records are only in the files.
  queueRecords: 100,
  batchRecords: 25,
  intervalMs: 5,
  onProblem: () => undefined,
  onRefused: ({ code, message }) => {
    process.stderr.write(`refused: ${code} ${message}\n`);
    process.exit(1);
  },
});

if (values.drain) {
  await sluice.flush();
  process.exit((await sluice.close()) ? 0 : 1);
}

const kept = openSync(values.kept, 'a');
for (let first = Number(values.first); ; first += group) {
  const calls = Array.from({ length: group }, (_, index) =>
    sluice.track({
      event: 'Numbered',
      identity: `user-${(first + index) % 7}`,
      properties: { n: first + index },
    }),
  );
  calls.push(sluice.addUserProperties({ identity: 'user-0', properties: { last: String(first) } }));
  await Promise.all(calls);
  writeSync(kept, `${first}\n`);
  // More records than tests read.
  if (first > 1e6) break;
}
closeSync(kept);
