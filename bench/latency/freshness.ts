// How soon after its acknowledgement can an event be queried? While a load runs, the bench sends probes: single events, each with a unique
// property. It repeatedly asks ClickHouse which probes it has; a probe's time ends with the first answer that shows it.

import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { paths, post } from '../../test/harness/ingestion.js';
import type { Deployment } from '../deployment/deployment.js';
import { BenchError } from '../failure.js';
import { newHistogram, record, spreadOf } from '../load/histogram.js';

export type Freshness = Awaited<ReturnType<ReturnType<typeof startProbing>['stop']>>;

const sendEveryMs = 100;
const askEveryMs = 50;
const missingMsMax = 30_000;

/**
 * Starts to send probes to an environment and to query them. `stop` ends the sending, and settles when every acknowledged probe could be
 * queried.
 */
export function startProbing({ url, rows }: Pick<Deployment, 'url' | 'rows'>, appId: string) {
  const startedAt = performance.now();
  const run = randomBytes(6).toString('hex');
  const acknowledgedAt = new Map<string, number>();
  const queryable = newHistogram();
  let stopped = false;
  let allSent = false;
  let questions = 0;

  async function send(number: number): Promise<void> {
    const probe = `${run}-${number}`;
    const event = { event: 'Probe', identity: `probe-${probe}`, properties: { probe } };
    const { status } = await post(url, paths.track, { app_id: appId, ...event });
    if (status !== 200) throw new BenchError(`a probe was answered ${status}`);
    acknowledgedAt.set(probe, performance.now());
  }

  async function keepSending(): Promise<void> {
    const underWay: Promise<void>[] = [];
    for (let number = 0; !stopped; number += 1) {
      underWay.push(send(number));
      await pause(Math.max(0, startedAt + (number + 1) * sendEveryMs - performance.now()));
    }
    await Promise.all(underWay).finally(() => {
      allSent = true;
    });
  }

  async function keepAsking(): Promise<void> {
    for (let seenAt = performance.now(); !allSent || acknowledgedAt.size > 0; await pause(askEveryMs)) {
      const found = await rows<{ probe: string }>(
        `SELECT properties['probe'] AS probe FROM events
          WHERE app_id = '${appId}' AND event = 'Probe' AND time >= now() - 60 SETTINGS max_threads = 1`,
      );
      questions += 1;
      const now = performance.now();
      for (const { probe } of found) {
        const since = acknowledgedAt.get(probe);
        if (since === undefined) continue;
        acknowledgedAt.delete(probe);
        record(queryable, now - since);
        seenAt = now;
      }
      if (now - seenAt > missingMsMax) {
        throw new BenchError(`${acknowledgedAt.size} acknowledged probes cannot be queried after 30 s`);
      }
    }
  }

  const both = Promise.all([keepSending(), keepAsking()]);
  // `stop` reports an earlier rejection.
  both.catch(() => undefined);
  return {
    stop: async () => {
      stopped = true;
      await both;
      return {
        /** From the API's answer to the first answer of ClickHouse that shows the probe. */
        ms: spreadOf(queryable),
        probes: queryable.totalCount,
        /** How often the bench asked ClickHouse, which is the cost of measuring. */
        questionsPerSecond: questions / ((performance.now() - startedAt) / 1000),
      };
    },
  };
}
