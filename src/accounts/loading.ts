// The right to load a deployment's state into an emptied Redis. One process at a time has it, and all that it writes
// is written only while it has it: neither a Redis that is emptied meanwhile nor another load goes unnoticed.

import { randomBytes } from 'node:crypto';
import { loads } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, type Script, scripts } from '../redis/scripts.js';
import { AdministrationError } from './accounts.js';
import { type Deployment, deploymentKey } from './documents.js';

export class LoadInterrupted extends AdministrationError {
  constructor() {
    super(
      'Redis was emptied while its state was loaded, or another restore took over: run "npm run admin -- restore" again',
    );
  }
}

export type Loading = {
  readonly nonce: string;
  /**
   * Runs a script that writes only while this process has the right. Its first keys and its first argument, which tell
   * that, are added here. Throws LoadInterrupted when the right is lost.
   */
  write(script: Script, keys: string[], args?: (string | number)[]): Promise<unknown>;
  /** Throws LoadInterrupted when the right is lost. */
  confirm(): Promise<void>;
  /** Makes Redis the deployment's, as the last step. */
  finish(deployment: Deployment, how: 'created' | 'restored'): Promise<void>;
  /** Gives the right up, if it is not given up yet. */
  end(): Promise<void>;
};

/** Takes the right, waiting for another load at most so long. Settles with undefined when Redis is loaded. */
export async function beginLoading(redis: Redis, waitMsMax: number): Promise<Loading | undefined> {
  const nonce = randomBytes(16).toString('hex');
  const giveUpAt = performance.now() + waitMsMax;
  for (;;) {
    const keys = [registryKeys.epoch, registryKeys.loading, registryKeys.documents];
    const taken = await runScript(redis, scripts.beginLoad, keys, [nonce, loads.holdMs, deploymentKey]);
    if (taken === -1) return undefined;
    if (taken === 1) return hold(redis, nonce);
    if (performance.now() >= giveUpAt) {
      throw new AdministrationError('another restore is running; try again when it has ended');
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function hold(redis: Redis, nonce: string): Loading {
  const renew = (ms: number) => runScript(redis, scripts.renewLoad, [registryKeys.loading], [nonce, ms]);
  // When a renewal fails and the right ends for it, the next write tells.
  const renewals = setInterval(() => renew(loads.holdMs).catch(() => null), loads.renewEveryMs);

  async function write(script: Script, keys: string[], args: (string | number)[] = []): Promise<unknown> {
    const guards = [registryKeys.epoch, registryKeys.loading];
    const reply = await runScript(redis, script, [...guards, ...keys], [nonce, ...args]);
    if (reply === null) throw new LoadInterrupted();
    return reply;
  }

  return {
    nonce,
    write,
    confirm: async () => {
      if ((await renew(loads.holdMs)) === null) throw new LoadInterrupted();
    },
    finish: async ({ epoch }, how) => {
      await write(
        scripts.endLoad,
        [registryKeys.documents, registryKeys.rewriteWanted],
        [epoch, deploymentKey, how === 'restored' ? 'restored' : ''],
      );
    },
    end: async () => {
      clearInterval(renewals);
      // When Redis cannot be told, the right ends by itself.
      await renew(0).catch(() => null);
    },
  };
}

/** Divides what is to be written into calls of a script, each as soon as it is known. */
export async function* inCalls<Item>(
  items: Iterable<Item> | AsyncIterable<Item>,
  bytesOf: (item: Item) => number,
): AsyncGenerator<Item[]> {
  let call: Item[] = [];
  let bytes = 0;
  for await (const item of items) {
    if (call.length > 0 && (call.length >= loads.documentsPerCallMax || bytes >= loads.bytesPerCallMax)) {
      yield call;
      call = [];
      bytes = 0;
    }
    call.push(item);
    bytes += bytesOf(item);
  }
  if (call.length > 0) yield call;
}
