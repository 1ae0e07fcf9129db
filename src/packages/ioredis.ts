// What we use of ioredis. The build makes one file of it (deploy/build.mjs).

import type { Socket } from 'node:net';
import { AbstractConnector, Command, Redis } from 'ioredis';

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

const toWritable = Command.prototype.toWritable;
const largeBytesMin = 16 * 1024;

// The library copies a command with all its arguments into one new buffer. The arguments of a large one go to the socket as they are.
// Commands of a pipeline are joined into one write later, so nothing of them may be written now.
Command.prototype.toWritable = function (this: Command & { pipelineIndex?: number }, socket: object) {
  const args = this.args as readonly (string | Buffer)[];
  if (this.pipelineIndex !== undefined || !args.some(isLarge)) return toWritable.call(this, socket);
  const stream = socket as Socket;
  stream.cork();
  let text = `*${args.length + 1}\r\n${framed(this.name)}`;
  for (const arg of args) {
    if (typeof arg === 'string') {
      text += framed(arg);
    } else {
      stream.write(`${text}$${arg.length}\r\n`);
      stream.write(arg);
      text = '\r\n';
    }
  }
  // The library writes what is left.
  process.nextTick(() => stream.uncork());
  return text;
};

function isLarge(arg: string | Buffer): boolean {
  return typeof arg !== 'string' && arg.length >= largeBytesMin;
}

function framed(text: string): string {
  return `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
}
