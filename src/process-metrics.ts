// Each process measures what it uses: CPU, memory, and how late its event loop runs.

import { monitorEventLoopDelay } from 'node:perf_hooks';
import { processLagSeconds, processMemoryBytes, processSeconds } from './metrics.js';

export type ProcessKind = 'api' | 'worker';

/** How often the loop's delay is sampled: 50 timers a second, often enough to see delays that a request would notice. */
const sampledEveryMs = 20;
const updateEveryMs = 1_000;
/** The lag is measured over periods of this length; the metric has that of the last complete one. */
const periodMs = 10_000;

/** Begins to measure this process. */
export function watchProcess(kind: ProcessKind): void {
  const labels = { process: kind };
  const delay = monitorEventLoopDelay({ resolution: sampledEveryMs });
  delay.enable();
  let counted = 0;
  let periodBegan = performance.now();
  const update = () => {
    const { user, system } = process.cpuUsage();
    const seconds = (user + system) / 1e6;
    processSeconds.inc(labels, seconds - counted);
    counted = seconds;
    processMemoryBytes.set(labels, process.memoryUsage.rss());
    if (performance.now() - periodBegan < periodMs) return;
    // A sample is the time between two runs of a timer, so a loop without delay shows the timer's own period.
    const lateMs = delay.percentile(99) / 1e6 - sampledEveryMs;
    processLagSeconds.set(labels, Math.max(0, lateMs) / 1_000);
    delay.reset();
    periodBegan = performance.now();
  };
  processLagSeconds.set(labels, 0);
  update();
  setInterval(update, updateEveryMs).unref();
}
