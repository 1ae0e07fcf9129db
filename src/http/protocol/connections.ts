// How many connections a port accepts. The parser closes connections that send nothing for 10 s, but does not report which connection has
// ended. So each address has a share of the new connections rather than of the open ones, and the share counts only while many are open.

import type { HttpResponse, TemplatedApp } from 'uWebSockets.js';
import { readFileSync } from 'node:fs';
import { connections } from '../../contract/limits.js';
import { addressOf, networkOf } from './caller-address.js';

export type ConnectionGate = {
  /**
   * Counts a new connection. Without an address no share applies. Returns false if it is one too many: the caller then closes the
   * connection, and this close counts as its end.
   */
  open(address: string | undefined): boolean;
  /** Counts the end of a connection. */
  close(): void;
};

export function createConnectionGate(
  max: number,
  clock: () => number = () => performance.now(),
): ConnectionGate {
  let count = 0;
  let windowEndsMs = 0;
  const openedBy = new Map<string, number>();
  return {
    open(address) {
      count += 1;
      const nowMs = clock();
      if (nowMs >= windowEndsMs) {
        windowEndsMs = nowMs + connections.windowMs;
        openedBy.clear();
      }
      if (address === undefined) return count <= max;
      const opened = (openedBy.get(address) ?? 0) + 1;
      openedBy.set(address, opened);
      const hasItsShare = opened > max * connections.shareOfAddress;
      return count <= max && !(hasItsShare && count > max * connections.busyFrom);
    },
    close() {
      count -= 1;
    },
  };
}

export type ConnectionLimit = {
  /** Closes the surplus connections of an app before anything is read from them. */
  attach(app: TemplatedApp): void;
  /** Counts the end of a connection that became a WebSocket, since the app does not report that. */
  webSocketEnded(): void;
};

/** Limits the connections of a port. A trusted proxy has no share, since it carries the connections of all callers. */
export function limitConnections(
  max: number,
  isProxy: (address: string) => boolean = () => false,
): ConnectionLimit {
  const gate = createConnectionGate(max);
  const count = (res: HttpResponse, change: unknown): void => {
    if (change === -1) return gate.close();
    const address = addressOf(res.getRemoteAddressAsText());
    if (!gate.open(isProxy(address) ? undefined : networkOf(address))) res.close();
  };
  return { attach: (app) => void app.filter(count), webSocketEnded: () => gate.close() };
}

/** How many connections each port of this process accepts, so that they do not use up its file descriptors. */
export function divideConnections(publicMax: number): { readonly public: number; readonly admin: number } {
  const descriptors = descriptorsMax() - connections.otherDescriptors;
  const admin = Math.min(connections.adminMax, Math.floor(descriptors * connections.adminShare));
  return { public: Math.min(publicMax, descriptors - admin), admin };
}

/** How many file descriptors this process may have. Node has raised the soft limit to the hard limit. */
function descriptorsMax(): number {
  const soft = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1];
  return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft);
}
