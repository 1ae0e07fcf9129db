// What does an event cost when the service is not busy? Sends single events at shares of the highest rate, in turns. The bench itself sends
// at every rate, since another generator would leave a different share of CPU to the service.

import type { Context } from '../context.js';
import { runWay } from '../throughput/throughput.js';
import { inTurns } from '../throughput/turns.js';

/** Shares of the highest rate, which the run at full load of the same round finds. 1: as fast as events are answered, and first. */
const shares = [1, 0.5, 0.7, 0.3, 0.1];
/** The shares that the target compares run in this many times as many rounds. */
const moreRounds = 3;
const sharesOfTarget = [1, 0.5];

export async function runCurve(context: Context) {
  const { options, progress } = context;
  let highest = 0;
  const turns = shares.map((share) => ({
    share,
    name: `curve, ${100 * share} %`,
    rounds: options.repeats * (sharesOfTarget.includes(share) ? moreRounds : 1),
    run: async () => {
      const rate = share === 1 ? undefined : Math.max(1, Math.round(highest * share));
      const run = await runWay(context, 'single', { rate });
      if (share === 1) highest = run.requestsPerSecond;
      return run;
    },
  }));
  const levels = (await inTurns(turns, progress)).map(({ share, runs }) => ({ share, runs }));
  return levels.sort((a, b) => a.share - b.share);
}

/** Half of the highest rate of single events, which one run finds; or the rate in the options. */
export async function rateOfHalfLoad(context: Context): Promise<number> {
  if (context.options.rate !== undefined) return context.options.rate;
  const { requestsPerSecond } = await runWay(context, 'single');
  context.progress.say(`the highest rate is ${Math.round(requestsPerSecond)} requests per second`);
  return Math.round(requestsPerSecond / 2);
}
