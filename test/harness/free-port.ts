// Hands out loopback ports for the servers of a test. Each test process has a block of ports of its own: while a server
// is down between a kill and its restart, its port looks free but still belongs to its test.

import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';
import { probePort } from '../../deploy/local/ports.js';

/** Below the range from which the kernel takes local ports for outgoing connections. */
const first = 15_000;
const portsPerBlock = 250;
const blocks = 68;

let block: Promise<number> | undefined;
let given = 0;

/**
 * Settles with a port that nobody uses now and that no other test process gets while this one lives. After the last port
 * of its block, a process begins again with the first.
 */
export async function freePort(): Promise<number> {
  block ??= takeBlock();
  const from = await block;
  for (let tried = 1; tried < portsPerBlock; tried += 1) {
    const port = from + 1 + (given % (portsPerBlock - 1));
    given += 1;
    if ((await probePort('127.0.0.1', port)) === 'free') return port;
  }
  throw new Error('no free port found');
}

/** Settles with the first of `count` consecutive ports that are free in the same way. */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    const ports: number[] = [];
    while (ports.length < count) ports.push(await freePort());
    if (ports.every((port, index) => port === (ports[0] as number) + index)) return ports[0] as number;
  }
}

/**
 * The process that listens on the first port of a block owns the others. The kernel frees that port when the process
 * ends.
 */
async function takeBlock(): Promise<number> {
  const start = randomInt(blocks);
  for (let tried = 0; tried < blocks; tried += 1) {
    const from = first + ((start + tried) % blocks) * portsPerBlock;
    if (await holdPort(from)) return from;
  }
  throw new Error('no free block of ports found');
}

function holdPort(port: number): Promise<boolean> {
  return new Promise((settle, reject) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') settle(false);
      else reject(error);
    });
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      server.unref();
      settle(true);
    });
  });
}
