// Asks a local redis-server, without a client library, whether it is ready.

import { connect } from 'node:net';

/**
 * Settles with the process id of the Redis on that loopback port or socket once it has loaded its data, and with `undefined` while it is
 * loading or if it has another password. Rejects if nobody answers.
 */
export async function readyRedisPid(at: number | string, password?: string): Promise<number | undefined> {
  const auth = password === undefined ? '' : `AUTH ${JSON.stringify(password)}\r\n`;
  const reply = await ask(at, `${auth}PING\r\nINFO server\r\nQUIT\r\n`);
  if (!reply.startsWith(password === undefined ? '+PONG' : '+OK\r\n+PONG')) return undefined;
  return Number(/^process_id:(\d+)/m.exec(reply)?.[1]);
}

/** The text of the answer of a Redis or a sentinel to a command. */
export function askRedis(port: number, password: string, command: string): Promise<string> {
  return ask(port, `AUTH ${JSON.stringify(password)}\r\n${command}\r\nQUIT\r\n`);
}

function ask(at: number | string, commands: string): Promise<string> {
  return new Promise((settle, reject) => {
    const socket = connect({
      ...(typeof at === 'number' ? { host: '127.0.0.1', port: at } : { path: at }),
      timeout: 1_000,
    });
    let text = '';
    socket.setEncoding('utf8');
    socket.on('connect', () => socket.write(commands));
    socket.on('data', (chunk: string) => {
      text += chunk;
    });
    socket.on('close', () => settle(text));
    socket.on('timeout', () => socket.destroy());
    socket.on('error', reject);
  });
}
