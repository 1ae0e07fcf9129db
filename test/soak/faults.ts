// Kills one process of every kind after another. Leaves out the first API process and the first worker, since their memory is measured.

import type { Child, SluiceHandle } from '../harness/services.js';

export type FaultEvent = { readonly atMs: number; readonly what: string };

/** Starts the faults, `everyMs` apart. The returned function stops them, and settles when the last process runs again. */
export function startFaults(sluice: SluiceHandle, everyMs: number): () => Promise<readonly FaultEvent[]> {
  const startedMs = performance.now();
  const events: FaultEvent[] = [];
  const victims: readonly (readonly [string, Child])[] = [
    ['an API process is killed', sluice.api[1] as Child],
    ['ClickHouse is killed', sluice.clickhouse],
    ['a worker is killed', sluice.workers[1] as Child],
    ['Redis is killed', sluice.redis],
  ];
  let running: Promise<void> = Promise.resolve();
  let next = 0;
  const timer = setInterval(() => {
    const [what, victim] = victims[next % victims.length] as readonly [string, Child];
    next += 1;
    running = running.then(async () => {
      events.push({ atMs: performance.now() - startedMs, what });
      await victim.kill9();
      await victim.restart();
    });
  }, everyMs);
  return async () => {
    clearInterval(timer);
    await running;
    return events;
  };
}
