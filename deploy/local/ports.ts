// Finds out whether a TCP port is free. Two uWebSockets.js processes share a port without an error (SO_REUSEPORT), so a port counts as free
// only if nobody answers on it and an exclusive bind succeeds.

import { connect, createServer } from 'node:net';

/** Settles with `free`, or with the reason why it is not: `taken`, or the error code of the bind. */
export async function probePort(host: string, port: number): Promise<'free' | 'taken' | string> {
  if (await answers(reachableHost(host), port)) return 'taken';
  const code = await bindError(host, port);
  return code === 'EADDRINUSE' ? 'taken' : (code ?? 'free');
}

/** The address at which a listener on `host` can be reached from this machine. */
export function reachableHost(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  return host === '::' ? '::1' : host;
}

function answers(host: string, port: number): Promise<boolean> {
  return new Promise((settle) => {
    const socket = connect({ host, port, timeout: 1_000 });
    const end = (answered: boolean) => {
      socket.destroy();
      settle(answered);
    };
    socket.on('connect', () => end(true));
    socket.on('timeout', () => end(false));
    socket.on('error', () => end(false));
  });
}

function bindError(host: string, port: number): Promise<string | undefined> {
  return new Promise((settle) => {
    const server = createServer();
    server.on('error', (error: NodeJS.ErrnoException) => settle(error.code ?? 'unknown'));
    server.listen({ host, port, exclusive: true }, () => server.close(() => settle(undefined)));
  });
}
