// Hands out loopback ports for the servers of a test.

import { randomInt } from 'node:crypto';
import { probePort } from '../../deploy/local/ports.js';

const given = new Set<number>();

/**
 * Settles with a port that nobody uses now. It is below the range from which the system takes the local
 * ports of outgoing connections: from there, any connection of any process could take it while the server
 * that owns it is down between a kill and its restart.
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt += 1) {
    const port = randomInt(15_000, 32_000);
    if (given.has(port) || (await probePort('127.0.0.1', port)) !== 'free') continue;
    given.add(port);
    return port;
  }
  throw new Error('no free port found');
}
