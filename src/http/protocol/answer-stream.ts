// The body of an answer that is sent piece by piece, as HTTP chunks. The sender waits while the client does not read, so that only little
// of the body is in memory. A body that breaks off has no last chunk: its connection is closed.
//
// If a client takes nothing for 10 s after a write, uWebSockets.js closes the connection, and no setting changes that. Each further write
// restarts the 10 s. So the stream holds some bytes back, and sends them one by one while it waits.

import type { HttpResponse } from 'uWebSockets.js';
import { userExports } from '../../contract/limits.js';
import { exportPieceBytesMax, slowReaders } from '../../tuning.js';

export class AnswerStream {
  readonly #res: HttpResponse;
  readonly #closeAfter: boolean;
  readonly #onEnd: () => void;
  #isOver = false;
  /** The bytes passed to `write` that are not sent yet. */
  #held = Buffer.alloc(0);
  #wake: (() => void) | undefined;

  /** `onEnd` is called once the whole body was handed over, unless the client disconnected before that. */
  constructor(res: HttpResponse, closeAfter: boolean, onEnd: () => void) {
    this.#res = res;
    this.#closeAfter = closeAfter;
    this.#onEnd = onEnd;
    res.onWritable(() => {
      this.#wakeUp();
      return true;
    });
  }

  /** Settles with true when more can be sent, or with false when the client is gone or takes nothing more. Only one call at a time. */
  async write(bytes: Buffer): Promise<boolean> {
    this.#held = Buffer.concat([this.#held, bytes]);
    while (this.#held.length > slowReaders.heldBytes && !this.#isOver) {
      const piece = this.#take(Math.min(exportPieceBytesMax, this.#held.length - slowReaders.heldBytes));
      if (!this.#send(piece)) await this.#untilWritable();
    }
    return !this.#isOver;
  }

  /** The next bytes to be sent. */
  #take(count: number): Buffer {
    const bytes = this.#held.subarray(0, count);
    this.#held = this.#held.subarray(count);
    return bytes;
  }

  #send(bytes: Buffer): boolean {
    let isTaken = true;
    this.#res.cork(() => {
      isTaken = this.#res.write(bytes);
    });
    return isTaken;
  }

  async #untilWritable(): Promise<void> {
    const stalled = setTimeout(() => this.cutOff(), userExports.stalledMsMax);
    const keepingOpen = setInterval(() => {
      const byte = this.#take(1);
      if (byte.length > 0 && this.#send(byte)) this.#wakeUp();
    }, slowReaders.byteEveryMs);
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    clearTimeout(stalled);
    clearInterval(keepingOpen);
  }

  /**
   * Ends a complete body once the socket has taken it. If it ended earlier, bytes that arrive on a connection that is about to close would
   * be read as a request. Settles with false if the client is gone or takes nothing more.
   */
  async end(): Promise<boolean> {
    const last = this.#take(this.#held.length);
    if (!this.#isOver && last.length > 0 && !this.#send(last)) await this.#untilWritable();
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#res.cork(() => {
      this.#res.end('', this.#closeAfter);
    });
    this.#onEnd();
    return true;
  }

  /** Closes the connection, so that the client notices that the body is incomplete. */
  cutOff(): void {
    if (!this.#isOver) this.#res.close();
  }

  /** To be called when the client has disconnected, or was cut off. */
  clientIsGone(): void {
    this.#isOver = true;
    this.#wakeUp();
  }

  #wakeUp(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
