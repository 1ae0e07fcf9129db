// What we use of ioredis. The build makes one file of it (deploy/build.mjs).

import type { Socket } from 'node:net';
import { AbstractConnector, Redis } from 'ioredis';

export {
  Cluster,
  type ClusterOptions,
  Redis,
  type RedisOptions,
  ReplyError,
  SentinelConnector,
} from 'ioredis';

const streams = new WeakMap<object, Socket>();

// The library listens for only one error of each connection. TLS may report a second one, such as a server's alert after its certificate
// was refused, and an error without a listener ends the process.
Object.defineProperty(AbstractConnector.prototype, 'stream', {
  get(this: object) {
    return streams.get(this);
  },
  set(this: object, stream: Socket) {
    stream.on('error', () => undefined);
    streams.set(this, stream);
  },
});

const disconnect = Redis.prototype.disconnect;

// A connection that is ended while it waits for its next attempt would never report its end, and whoever waits for that, or for its
// commands, would wait for ever. The library handles this only for connections that wait for their first attempt.
Redis.prototype.disconnect = function (this: Redis, again = false) {
  if (!again && this.status === 'reconnecting') this.status = 'wait';
  disconnect.call(this, again);
};
