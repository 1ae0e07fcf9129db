// The process of a producer: makes events and passes them to the library for servers as fast as the library accepts them. Prints its peak
// memory in bytes.

import { createSluice } from '../../src/libraries/producer/index.js';
import { eventOf } from '../load/events.js';

const [, , baseUrl = '', appId = '', first = '', events = ''] = process.argv;
const sluice = createSluice({
  appId,
  baseUrl,
  onRefused: ({ code, message }) => {
    process.stderr.write(`refused: ${code}: ${message}\n`);
    process.exit(1);
  },
});
for (let number = Number(first); number < Number(first) + Number(events); number++) {
  const { event, identity, properties } = eventOf(number);
  await sluice.track({ event, identity, properties });
}
if (!(await sluice.close(120_000))) throw new Error('some events were not answered');
process.stdout.write(String(process.resourceUsage().maxRSS * 1024));
