// HTTP over a bare socket. The test chooses every byte that is sent, well-formed or not, and sees every reply and whether
// the server closed the connection. This file only parses replies and knows nothing of the service.

import { connect, type Socket } from 'node:net';
import { until } from './wait.js';

export type RawReply = {
  readonly status: number;
  /** The status line and the headers as they arrived. */
  readonly head: string;
  /** By lower-case name; several of one name are joined with a comma. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
};

export type RawConnection = {
  /** Complete replies, oldest first. An interim reply (100) counts too. */
  readonly replies: readonly RawReply[];
  /** Bytes that have arrived and are not part of a complete reply yet; latin1. */
  readonly rest: string;
  /** Whether the server has ended or reset the connection. */
  readonly closed: boolean;
  /** Settles when the bytes are handed to the kernel. Never rejects, since the server may cut a refused request off. */
  send(bytes: string | Uint8Array): Promise<void>;
  /** Ends the sending side; replies still arrive. */
  endSending(): void;
  /** Settles with the reply of this number (from 0); rejects when the server closes the connection before it. */
  reply(number: number, deadlineMs?: number): Promise<RawReply>;
  /** Settles when the server has ended or reset the connection. */
  untilClosed(deadlineMs?: number): Promise<void>;
  destroy(): void;
};

const replyDeadlineMs = 30_000;

/** Connects to the host and port of a base URL; settles when it is connected. Strings go out as UTF-8. */
export async function openRaw(baseUrl: string): Promise<RawConnection> {
  const { hostname, port } = new URL(baseUrl);
  const socket = await connected(hostname, Number(port));
  const replies: RawReply[] = [];
  let bytes = Buffer.alloc(0);
  let closed = false;

  const take = (atEnd: boolean) => {
    for (;;) {
      const taken = takeReply(bytes, atEnd);
      if (taken === undefined) return;
      replies.push(taken.reply);
      bytes = bytes.subarray(taken.bytes);
    }
  };
  socket.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    take(false);
  });
  socket.on('error', () => {});
  const gone = new Promise<void>((settle) => socket.once('close', () => settle()));
  for (const event of ['end', 'close'] as const) {
    socket.once(event, () => {
      take(true);
      closed = true;
    });
  }

  return {
    replies,
    get rest() {
      return bytes.toString('latin1');
    },
    get closed() {
      return closed;
    },
    send: (what) => Promise.race([gone, new Promise<void>((settle) => socket.write(what, () => settle()))]),
    endSending: () => void socket.end(),
    async reply(number, deadlineMs = replyDeadlineMs) {
      await until(() => closed || replies.length > number, {
        deadlineMs,
        what: `reply ${number} has arrived; ${replies.length} replies and ${bytes.length} bytes so far`,
        everyMs: 1,
      });
      const reply = replies[number];
      if (reply === undefined)
        throw new Error(`closed after ${replies.length} replies, wanted ${number + 1}`);
      return reply;
    },
    async untilClosed(deadlineMs = replyDeadlineMs) {
      await until(() => closed, { deadlineMs, what: 'the server has closed the connection', everyMs: 1 });
    },
    destroy: () => void socket.destroy(),
  };
}

/** Sends one request on a connection of its own, which is closed after the reply. */
export async function askRaw(baseUrl: string, request: string | Uint8Array): Promise<RawReply> {
  const connection = await openRaw(baseUrl);
  try {
    await connection.send(request);
    return await connection.reply(0);
  } finally {
    connection.destroy();
  }
}

function connected(host: string, port: number): Promise<Socket> {
  return new Promise((settle, reject) => {
    const socket = connect({ host, port, noDelay: true, allowHalfOpen: true });
    socket.once('connect', () => settle(socket));
    socket.once('error', reject);
  });
}

type Taken = { readonly reply: RawReply; readonly bytes: number };

/** The first complete reply (not one to HEAD) and its size; undefined when more bytes are needed. */
export function takeReply(bytes: Buffer, atEnd: boolean): Taken | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const head = bytes.toString('latin1', 0, headEnd);
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(head)?.[1]);
  if (Number.isNaN(status))
    throw new Error(`not the start of a reply: ${JSON.stringify(head.slice(0, 200))}`);
  const bodyStart = headEnd + 4;
  const headers = new Map<string, string>();
  for (const line of head.split('\r\n').slice(1)) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    headers.set(name, headers.has(name) ? `${headers.get(name)}, ${value}` : value);
  }
  const length = status < 200 || status === 204 || status === 304 ? '0' : headers.get('content-length');
  if (length === undefined && !atEnd) return undefined;
  const bodyEnd = length === undefined ? bytes.length : bodyStart + Number(length);
  if (bytes.length < bodyEnd) return undefined;
  return {
    reply: { status, head, headers, body: bytes.toString('utf8', bodyStart, bodyEnd) },
    bytes: bodyEnd,
  };
}
