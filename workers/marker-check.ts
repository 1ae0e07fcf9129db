// How long before an insert the worker checked what is stored. ClickHouse remembers only the tokens of its latest inserts, so an
// insert that comes much later than its check, because the process or its machine was paused, may store rows twice.

import { insertTokens } from '../src/tuning.js';

/** A worker's check is too old to rely on for an insert. The job is tried again, with a new check. */
export class MarkerCheckTooOld extends Error {
  constructor(ms: number) {
    super(`the check of what is stored is ${Math.round(ms / 1000)} s old: check again`);
  }
}

/**
 * Call it before the check. The returned function throws MarkerCheckTooOld if it is called too late. The clock that advanced
 * further counts: the monotonic one stops while a machine is suspended, and the wall clock may be set back.
 */
export function beginMarkerCheck(): () => void {
  const [monotonicMs, wallMs] = [performance.now(), Date.now()];
  return () => {
    const ms = Math.max(performance.now() - monotonicMs, Date.now() - wallMs);
    if (ms > insertTokens.markerCheckMsMax) throw new MarkerCheckTooOld(ms);
  };
}
