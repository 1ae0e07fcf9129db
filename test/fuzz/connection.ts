// A bare connection for the fuzzer. It waits for events and does not poll, since there are thousands of short cases.

import { connect, type Socket } from 'node:net';
import { type RawReply, takeReply } from '../harness/raw-http.js';

export type FuzzConnection = {
  /** Complete replies since the last `forget`. */
  readonly replies: readonly RawReply[];
  /** Describes bytes from the server that are not a reply. */
  readonly garbage: string | undefined;
  /** The beginning of a reply that the end of the connection cut off. */
  readonly cutOff: string | undefined;
  readonly closed: boolean;
  write(bytes: Uint8Array): void;
  /** Settles with true when the condition holds, or with false when `ms` have passed or it can never hold. */
  wait(condition: () => boolean, ms: number): Promise<boolean>;
  forget(): void;
  destroy(): void;
};

/** Settles when the connection is open; rejects if nobody listens. */
export async function openConnection(host: string, port: number): Promise<FuzzConnection> {
  const socket = await new Promise<Socket>((settle, reject) => {
    const opened = connect({ host, port, noDelay: true });
    opened.once('connect', () => settle(opened));
    opened.once('error', reject);
  });
  let replies: RawReply[] = [];
  let bytes: Buffer = Buffer.alloc(0);
  let garbage: string | undefined;
  let cutOff: string | undefined;
  let closed = false;
  let recheck: (() => void) | undefined;

  const take = (atEnd: boolean) => {
    try {
      for (;;) {
        const taken = bytes.length === 0 ? undefined : takeReply(bytes, atEnd);
        if (taken === undefined) break;
        replies.push(taken.reply);
        bytes = bytes.subarray(taken.bytes);
      }
      if (atEnd && bytes.length > 0) cutOff = bytes.toString('latin1').slice(0, 200);
    } catch (error) {
      garbage = (error as Error).message;
    }
    recheck?.();
  };
  socket.on('data', (chunk: Buffer) => {
    bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
    take(false);
  });
  // A reset means only that the connection is closed.
  socket.on('error', () => undefined);
  socket.once('close', () => {
    closed = true;
    take(true);
  });

  return {
    get replies() {
      return replies;
    },
    get garbage() {
      return garbage;
    },
    get cutOff() {
      return cutOff;
    },
    get closed() {
      return closed;
    },
    write: (what) => void socket.write(what),
    wait: (condition, ms) =>
      new Promise((settle) => {
        const done = () => closed || garbage !== undefined || condition();
        if (done()) return settle(condition());
        let isOver = false;
        const end = () => {
          if (isOver) return;
          isOver = true;
          clearTimeout(timer);
          recheck = undefined;
          settle(condition());
        };
        // After a pause of this process, Node runs timers before it reads what has arrived; some turns later it has read that.
        const timer = setTimeout(() => setImmediate(() => setImmediate(() => setImmediate(end))), ms);
        recheck = () => {
          if (done()) end();
        };
      }),
    forget: () => {
      replies = [];
    },
    destroy: () => {
      socket.destroy();
    },
  };
}
