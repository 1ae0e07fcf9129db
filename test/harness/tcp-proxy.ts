// A TCP proxy between a process and Redis or ClickHouse whose faults a test switches on and off. As in a network, no connection continues
// after it has lost bytes: the proxy resets it when the fault ends.

import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

export type TcpProxy = {
  readonly port: number;
  readonly connections: number;
  /** Bytes that reached the target, and bytes that came back from it, whether they were passed on or not. */
  readonly bytesSent: number;
  readonly bytesReceived: number;
  /** Looks for an ASCII text in what callers send from now on. The returned function says whether it was there. */
  lookFor(text: string): () => boolean;
  /** Ends every fault and passes everything on, as at the start. */
  pass(): void;
  /** Resets all connections, and every new one until the mode changes. */
  cut(): void;
  /** Resets only the present connections. */
  reset(): void;
  /** Silently holds back everything in both directions until `pass`. */
  blackHole(): void;
  /** Requests arrive but replies get lost, so the caller cannot know whether a request was executed. */
  dropReplies(): void;
  /** Passes everything on, each piece `ms` later, in order. */
  delay(ms: number): void;
  close(): Promise<void>;
};

export type TcpProxyTarget = { readonly host?: string; readonly port: number };

type Mode = 'pass' | 'cut' | 'black-hole' | 'drop-replies';
type Connection = { readonly near: Socket; far: Socket | undefined; lostBytes: boolean };

/** Listens on a loopback port of its own; settles when it does. It does not keep the process alive. */
export async function startTcpProxy(target: TcpProxyTarget): Promise<TcpProxy> {
  const connections = new Set<Connection>();
  let mode: Mode = 'pass';
  let delayMs = 0;
  let bytesSent = 0;
  let bytesReceived = 0;
  const listeners = new Set<(chunk: Buffer, connection: Connection) => void>();

  const server = createServer({ allowHalfOpen: true }, (near) => {
    const connection: Connection = { near, far: undefined, lostBytes: false };
    connections.add(connection);
    near.unref().pause();
    watch(near, connection);
    if (mode === 'cut') drop(connection);
    else if (mode !== 'black-hole') join(connection);
  });

  function join(connection: Connection): void {
    const { near } = connection;
    const far = connect({ host: target.host ?? '127.0.0.1', port: target.port, allowHalfOpen: true });
    connection.far = far;
    far.unref();
    watch(far, connection);
    pump(near, far, (chunk) => {
      bytesSent += chunk.length;
      for (const listener of listeners) listener(chunk, connection);
      return true;
    });
    pump(far, near, ({ length }) => {
      bytesReceived += length;
      if (mode !== 'drop-replies') return true;
      connection.lostBytes = true;
      return false;
    });
    near.resume();
  }

  // A connection closes when both sides have ended it; an error on one side resets the other.
  function watch(socket: Socket, connection: Connection): void {
    socket.on('error', () => drop(connection));
    socket.on('close', () => {
      if (connection.near.destroyed && connection.far?.destroyed !== false) connections.delete(connection);
    });
  }

  function pump(from: Socket, to: Socket, keeps: (chunk: Buffer) => boolean): void {
    let late = Promise.resolve();
    let waiting = 0;
    const after = (action: () => void) => {
      if (delayMs === 0 && waiting === 0) return action();
      const dueAt = performance.now() + delayMs;
      waiting += 1;
      late = late
        .then(() => new Promise<void>((settle) => setTimeout(settle, dueAt - performance.now())))
        .then(() => {
          waiting -= 1;
          action();
        });
    };
    from.on('data', (chunk: Buffer) => {
      if (!keeps(chunk)) return;
      after(() => {
        if (to.destroyed || to.write(chunk)) return;
        from.pause();
        to.once('drain', () => {
          if (mode !== 'black-hole') from.resume();
        });
      });
    });
    from.on('end', () => after(() => to.end()));
  }

  function drop(connection: Connection): void {
    if (!connections.delete(connection)) return;
    // If a socket is reset while it is being ended, Node 20 never closes it, and the process never ends.
    if (connection.near.writableEnded) connection.near.destroy();
    else connection.near.resetAndDestroy();
    connection.far?.destroy();
  }

  function enter(next: Mode, nextDelayMs = 0): void {
    mode = next;
    delayMs = nextDelayMs;
    for (const connection of connections) {
      const { near, far, lostBytes } = connection;
      if (mode === 'cut' || (lostBytes && mode !== 'drop-replies')) drop(connection);
      else if (mode === 'black-hole') {
        near.pause();
        far?.pause();
      } else if (far === undefined) join(connection);
      else {
        near.resume();
        far.resume();
      }
    }
  }

  const port = await listen(server);
  return {
    port,
    get connections() {
      return connections.size;
    },
    get bytesSent() {
      return bytesSent;
    },
    get bytesReceived() {
      return bytesReceived;
    },
    lookFor: (text) => {
      let seen = false;
      // A text may lie across two pieces of one connection.
      const ends = new WeakMap<Connection, string>();
      const listener = (chunk: Buffer, connection: Connection) => {
        const piece = (ends.get(connection) ?? '') + chunk.toString('latin1');
        seen = piece.includes(text);
        if (seen) listeners.delete(listener);
        else ends.set(connection, piece.slice(-text.length));
      };
      listeners.add(listener);
      return () => seen;
    },
    pass: () => enter('pass'),
    cut: () => enter('cut'),
    reset: () => connections.forEach(drop),
    blackHole: () => enter('black-hole'),
    dropReplies: () => enter('drop-replies'),
    delay: (ms) => enter('pass', ms),
    close: () =>
      new Promise((settle) => {
        server.close(() => settle());
        connections.forEach(drop);
      }),
  };
}

function listen(server: Server): Promise<number> {
  return new Promise((settle, reject) => {
    server.on('error', reject);
    server.listen({ host: '127.0.0.1', port: 0 }, () => {
      server.unref();
      settle((server.address() as AddressInfo).port);
    });
  });
}
