// Memory for the bodies that a process holds. No address can take all of it. Addresses that one caller may own together count as one.

import { type Rejection, rejection } from '../../contract/outcomes.js';
import { networkOf } from './caller-address.js';

export type Room = {
  /** Takes room if it is free now. Returns whether it did. */
  take(address: string, bytes: number): boolean;
  /** Gives room back that was taken. */
  give(address: string, bytes: number): void;
  /**
   * Asks for room. Calls `settle` once, now or later: with true when the room is taken, with false if none was free in time. The returned
   * function stops waiting; once settled, it does nothing.
   */
  ask(address: string, bytes: number, settle: (isTaken: boolean) => void): () => void;
};

export type RoomLimits = {
  readonly bytesMax: number;
  /** One address gets no more than this, even if more is free. */
  readonly bytesPerAddressMax: number;
  /** How long a request waits for room. */
  readonly waitMsMax: number;
};

type Waiting = {
  readonly network: string;
  readonly bytes: number;
  readonly settle: (isTaken: boolean) => void;
};

export function createRoom(limits: RoomLimits): Room {
  let taken = 0;
  const takenBy = new Map<string, number>();
  /** In the order of their requests. */
  const waiting = new Map<Waiting, NodeJS.Timeout>();

  function change(network: string, bytes: number): void {
    taken += bytes;
    const own = (takenBy.get(network) ?? 0) + bytes;
    if (own === 0) takenBy.delete(network);
    else takenBy.set(network, own);
  }

  function take(network: string, bytes: number): boolean {
    const own = takenBy.get(network) ?? 0;
    if (taken + bytes > limits.bytesMax || own + bytes > limits.bytesPerAddressMax) return false;
    change(network, bytes);
    return true;
  }

  function end(one: Waiting): void {
    clearTimeout(waiting.get(one));
    waiting.delete(one);
  }

  /** Passes over networks that already have their share. */
  function admitWaiting(): void {
    for (const one of [...waiting.keys()]) {
      if (!waiting.has(one) || !take(one.network, one.bytes)) continue;
      end(one);
      one.settle(true);
    }
  }

  return {
    take: (address, bytes) => take(networkOf(address), bytes),
    give(address, bytes) {
      if (bytes === 0) return;
      change(networkOf(address), -bytes);
      if (waiting.size > 0) admitWaiting();
    },
    ask(address, bytes, settle) {
      const network = networkOf(address);
      const one = { network, bytes, settle };
      if (take(network, bytes)) {
        settle(true);
        return () => undefined;
      }
      const timer = setTimeout(() => {
        end(one);
        settle(false);
      }, limits.waitMsMax);
      waiting.set(one, timer);
      return () => end(one);
    },
  };
}

export const overloaded = rejection('overloaded', 'Too many bodies are being received; nothing was stored.');

export function tooLarge(bytesMax: number): Rejection {
  return rejection('body_too_large', `The body must have at most ${bytesMax} bytes after inflating.`);
}
