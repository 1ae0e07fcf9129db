// How long ago a worker checked what is stored, right before it inserts. ClickHouse knows the tokens of its last inserts only,
// so an insert that comes much later than its check may store rows twice: the process, or its machine, stood still meanwhile.

import { insertTokens } from '../src/tuning.js';

/** A worker's check is too old to insert anything by it. The job is tried again, with a new check. */
export class MarkerCheckTooOld extends Error {
  constructor(ms: number) {
    super(`the check for what is stored is ${Math.round(ms / 1000)} s old: check again`);
  }
}

/**
 * Call it before the check. The function that it returns throws MarkerCheckTooOld if it is called too late. Of the two clocks
 * the one that went further counts: one stands still while a machine is suspended, the other may be set back.
 */
export function beginMarkerCheck(): () => void {
  const [monotonicMs, wallMs] = [performance.now(), Date.now()];
  return () => {
    const ms = Math.max(performance.now() - monotonicMs, Date.now() - wallMs);
    if (ms > insertTokens.markerCheckMsMax) throw new MarkerCheckTooOld(ms);
  };
}
