// Carries what a live pairing shows from the process that the device has called to the processes that serve its pages. It uses Redis's
// publish and subscribe, which stores nothing: a page that is not listening at that moment misses the message.

import type { Log } from '../../log.js';
import type { Redis } from '../../redis/client.js';
import { visualizerKeys } from '../../redis/keys.js';

export type ChannelMessage =
  /** A batch of `count` messages with their answers, as JSON. */
  | { readonly kind: 'batch'; readonly count: number; readonly json: string }
  /** The device has ended the pairing, or another page has. */
  | { readonly kind: 'ended'; readonly by: 'device' | 'page' }
  /** The connection to Redis was interrupted, so messages may have been missed. */
  | { readonly kind: 'gap' };

export type Listener = (message: ChannelMessage) => void;

export type Channel = {
  /** Settles when Redis has passed the message on to all listeners. */
  publish(id: string, message: Exclude<ChannelMessage, { kind: 'gap' }>): Promise<void>;
  /** Settles once the listener gets everything that is published from then on. The result is a function that stops listening. */
  listen(id: string, listener: Listener): Promise<() => void>;
  close(): void;
};

export type ChannelOptions = {
  readonly redis: Redis;
  /** Makes the connection for listening, which exists only while a page listens. */
  readonly connectForMessages: () => Redis;
  readonly log: Log;
};

/** A silent connection may be dead, which a ping shows. */
const pingEveryMs = 5_000;

export function createChannel({ redis, connectForMessages, log }: ChannelOptions): Channel {
  const listeners = new Map<string, Set<Listener>>();
  let subscriber: Redis | undefined;
  let pings: NodeJS.Timeout | undefined;

  function connected(): Redis {
    if (subscriber !== undefined) return subscriber;
    const connection = connectForMessages();
    let wasReady = false;
    connection.on('ready', () => {
      wasReady = true;
    });
    connection.on('close', () => {
      if (!wasReady) return;
      wasReady = false;
      for (const all of listeners.values()) for (const listener of all) listener({ kind: 'gap' });
    });
    connection.on('message', (name: string, text: string) => {
      const message = read(text);
      for (const listener of listeners.get(name) ?? []) listener(message);
    });
    // If a ping fails, its time-out ends the connection, so nothing else is needed.
    pings = setInterval(() => void connection.ping().catch(() => undefined), pingEveryMs);
    subscriber = connection;
    return connection;
  }

  function leave(name: string, listener: Listener): void {
    const all = listeners.get(name);
    if (!all?.delete(listener) || all.size > 0) return;
    listeners.delete(name);
    if (listeners.size === 0) return disconnect();
    subscriber?.unsubscribe(name).catch((error: unknown) => {
      log.debug({ error }, 'a channel of the visualizer was not left');
    });
  }

  function disconnect(): void {
    clearInterval(pings);
    subscriber?.disconnect();
    subscriber = undefined;
  }

  return {
    publish: async (id, message) => {
      await redis.publish(visualizerKeys.channel(id), write(message));
    },
    listen: async (id, listener) => {
      const name = visualizerKeys.channel(id);
      const all = listeners.get(name) ?? new Set();
      listeners.set(name, all.add(listener));
      try {
        await connected().subscribe(name);
      } catch (error) {
        leave(name, listener);
        throw error;
      }
      return () => leave(name, listener);
    },
    close: () => {
      listeners.clear();
      disconnect();
    },
  };
}

function write(message: Exclude<ChannelMessage, { kind: 'gap' }>): string {
  return message.kind === 'batch' ? `batch ${message.count} ${message.json}` : `ended ${message.by}`;
}

function read(text: string): ChannelMessage {
  const space = text.indexOf(' ', 6);
  if (text.startsWith('batch ')) {
    return { kind: 'batch', count: Number(text.slice(6, space)), json: text.slice(space + 1) };
  }
  return { kind: 'ended', by: text === 'ended device' ? 'device' : 'page' };
}
