// What a live pairing shows, on its way from the process that a device asked to those that serve its pages:
// through Redis's publish and subscribe, which stores nothing. Whoever does not listen at that moment misses it.

import { describeError, type Log } from '../log.js';
import type { Redis } from '../redis/client.js';
import { visualizerKeys } from '../redis/keys.js';

export type Shown =
  /** A batch of `count` messages with their answers, as JSON. */
  | { readonly kind: 'batch'; readonly count: number; readonly json: string }
  /** The device has ended the pairing, or another page has. */
  | { readonly kind: 'ended'; readonly by: 'device' | 'page' }
  /** The way through Redis was interrupted: something may have been missed. */
  | { readonly kind: 'gap' };

export type Listener = (shown: Shown) => void;

export type Channel = {
  /** Settles when Redis has passed it on to whoever listens. */
  publish(id: string, shown: Exclude<Shown, { kind: 'gap' }>): Promise<void>;
  /** Settles, with what ends it, when the listener hears all that is published from now on. */
  listen(id: string, listener: Listener): Promise<() => void>;
  close(): void;
};

export type ChannelOptions = {
  readonly redis: Redis;
  /** Makes the connection for listening: only while somebody listens, there is one. */
  readonly connectForMessages: () => Redis;
  readonly log: Log;
};

/** A connection on which nothing comes may be dead; this finds out. */
const pingEveryMs = 5_000;

export function createChannel({ redis, connectForMessages, log }: ChannelOptions): Channel {
  const listeners = new Map<string, Set<Listener>>();
  let subscriber: Redis | undefined;
  let pings: NodeJS.Timeout | undefined;

  function connected(): Redis {
    if (subscriber !== undefined) return subscriber;
    const made = connectForMessages();
    let wasReady = false;
    made.on('ready', () => {
      wasReady = true;
    });
    made.on('close', () => {
      if (!wasReady) return;
      wasReady = false;
      for (const all of listeners.values()) for (const listener of all) listener({ kind: 'gap' });
    });
    made.on('message', (name: string, text: string) => {
      const shown = read(text);
      for (const listener of listeners.get(name) ?? []) listener(shown);
    });
    // A ping that fails ends the connection by its own timeout; nothing else is to be done.
    pings = setInterval(() => void made.ping().catch(() => undefined), pingEveryMs);
    subscriber = made;
    return made;
  }

  function leave(name: string, listener: Listener): void {
    const all = listeners.get(name);
    if (!all?.delete(listener) || all.size > 0) return;
    listeners.delete(name);
    if (listeners.size === 0) return disconnect();
    subscriber?.unsubscribe(name).catch((error: unknown) => {
      log.debug({ error: describeError(error) }, 'a channel of the visualizer was not left');
    });
  }

  function disconnect(): void {
    clearInterval(pings);
    subscriber?.disconnect();
    subscriber = undefined;
  }

  return {
    publish: async (id, shown) => {
      await redis.publish(visualizerKeys.channel(id), write(shown));
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

function write(shown: Exclude<Shown, { kind: 'gap' }>): string {
  return shown.kind === 'batch' ? `batch ${shown.count} ${shown.json}` : `ended ${shown.by}`;
}

function read(text: string): Shown {
  const space = text.indexOf(' ', 6);
  if (text.startsWith('batch ')) {
    return { kind: 'batch', count: Number(text.slice(6, space)), json: text.slice(space + 1) };
  }
  return { kind: 'ended', by: text === 'ended device' ? 'device' : 'page' };
}
