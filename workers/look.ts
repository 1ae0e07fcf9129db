// How long ago a worker looked at what is stored, right before it inserts. ClickHouse knows the tokens of its last inserts
// only, so an insert that comes much later than its look may double rows: the process stood still meanwhile, or its machine did.

import { insertTokens } from '../src/tuning.js';

/** A worker's look is too old to insert anything by it. The job is tried again, from a new look. */
export class LookTooOld extends Error {
  constructor(ms: number) {
    super(`the look for what is stored is ${Math.round(ms / 1000)} s old: look again`);
  }
}

/**
 * To be called before the look. What it returns throws LookTooOld if it is called too late. Of the two clocks the one that went
 * further counts: one stands still while a machine is suspended, the other one may be set back.
 */
export function beginLook(): () => void {
  const [monotonicMs, wallMs] = [performance.now(), Date.now()];
  return () => {
    const ms = Math.max(performance.now() - monotonicMs, Date.now() - wallMs);
    if (ms > insertTokens.markerCheckMsMax) throw new LookTooOld(ms);
  };
}
