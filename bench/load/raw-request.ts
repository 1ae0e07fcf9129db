// The minimum of HTTP that the load at a fixed rate needs: one request, and whether it was answered 200 `{}`.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

const statusLine = 'HTTP/1.1 200';
const answerCharsMax = 1000;

/** Settles with a connection to the URL's server. */
export async function openSocket(url: string): Promise<Socket> {
  const { protocol, hostname, port } = new URL(url);
  if (protocol === 'https:') {
    const socket = connectTls({ host: hostname, port: Number(port || 443), servername: hostname });
    await once(socket, 'secureConnect');
    return socket.setNoDelay(true);
  }
  const socket = connect({ host: hostname, port: Number(port || 80), noDelay: true });
  await once(socket, 'connect');
  return socket;
}

/** A whole POST request. */
export function requestText(url: string, path: string, body: Buffer): Buffer {
  const head = [
    `POST ${path} HTTP/1.1`,
    `Host: ${new URL(url).host}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ];
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body]);
}

/** Whether the received text is a whole answer 200 `{}`, with a length or in chunks. */
export function isAccepted(received: string): boolean {
  if (!received.startsWith(statusLine)) return false;
  return received.endsWith('\r\n\r\n{}') || received.endsWith('\r\n2\r\n{}\r\n0\r\n\r\n');
}

/** Whether the received text may be the beginning of one. */
export function mayBecomeAccepted(received: string): boolean {
  return received.startsWith(statusLine.slice(0, received.length)) && received.length <= answerCharsMax;
}
