// The process of a producer: makes events and passes them to the library for servers as fast as it accepts them. Prints
// what that took.

import { createSluice } from '../../src/producer/index.js';
import { userOf } from '../load/events.js';

const [, , baseUrl = '', appId = '', first = '', events = ''] = process.argv;
const currencies = ['EUR', 'USD', 'GBP', 'JPY'];

const sluice = createSluice({
  appId,
  baseUrl,
  onRefused: ({ code, message }) => {
    process.stderr.write(`refused: ${code}: ${message}\n`);
    process.exit(1);
  },
});

const startedAt = performance.now();
const cpuBefore = process.cpuUsage();
for (let number = Number(first); number < Number(first) + Number(events); number++) {
  await sluice.track({
    event: 'Order Completed',
    identity: userOf(number),
    properties: {
      order_id: `order-${String(number).padStart(9, '0')}`,
      amount: (number % 100_000) / 100,
      currency: currencies[number % currencies.length],
      items: 1 + (number % 7),
    },
  });
}
if (!(await sluice.close(120_000))) throw new Error('not all was answered for');
const { user, system } = process.cpuUsage(cpuBefore);
const sent = {
  seconds: (performance.now() - startedAt) / 1000,
  cpuMicroseconds: user + system,
  bytes: process.resourceUsage().maxRSS * 1024,
};
process.stdout.write(JSON.stringify(sent));
