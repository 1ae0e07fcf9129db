// The body of an answer that is sent piece by piece, in chunks of HTTP. Its sender waits while the client does not read on, so
// little of it is in memory. A body that breaks off has no last chunk: its connection is closed.

import type { HttpResponse } from 'uWebSockets.js';
import { userExports } from '../../contract/limits.js';
import { exportPieceBytesMax } from '../../tuning.js';

export class AnswerStream {
  readonly #res: HttpResponse;
  readonly #closeAfter: boolean;
  readonly #onEnd: () => void;
  #isOver = false;
  #wake: (() => void) | undefined;

  /** `onEnd` is called when the whole body was handed over, unless the client has gone before. */
  constructor(res: HttpResponse, closeAfter: boolean, onEnd: () => void) {
    this.#res = res;
    this.#closeAfter = closeAfter;
    this.#onEnd = onEnd;
    res.onWritable(() => {
      this.#wakeUp();
      return true;
    });
  }

  /** Settles when more can be sent, or with false when the client is gone or takes nothing more. One call at a time. */
  async write(bytes: Buffer): Promise<boolean> {
    for (let from = 0; from < bytes.length && !this.#isOver; from += exportPieceBytesMax) {
      const piece = bytes.subarray(from, from + exportPieceBytesMax);
      let isTaken = true;
      this.#res.cork(() => {
        isTaken = this.#res.write(piece);
      });
      if (!isTaken) await this.#untilWritable();
    }
    return !this.#isOver;
  }

  async #untilWritable(): Promise<void> {
    const stalled = setTimeout(() => this.cutOff(), userExports.stalledMsMax);
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    clearTimeout(stalled);
  }

  /** Ends the body as a whole one. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#res.cork(() => {
      this.#res.end('', this.#closeAfter);
    });
    this.#onEnd();
  }

  /** Closes the connection, so that the client sees a body without its end. */
  cutOff(): void {
    if (!this.#isOver) this.#res.close();
  }

  /** To be called when the client is gone, or was cut off. */
  clientIsGone(): void {
    this.#isOver = true;
    this.#wakeUp();
  }

  #wakeUp(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
