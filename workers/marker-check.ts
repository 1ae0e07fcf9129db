// How long before an insert the worker checked what is stored. ClickHouse remembers only the tokens of its latest inserts, so an
// insert that comes much later than its check, because the process or its machine was paused, may store rows twice.

import { insertTokens } from '../src/tuning.js';

/**
 * Call it before the check. The returned function throws if it is called too late; the job is then tried again, with a new check. The
 * clock that advanced further counts: the monotonic one stops while a machine is suspended, and the wall clock may be set back.
 */
export function beginMarkerCheck(): () => void {
  const [monotonicMs, wallMs] = [performance.now(), Date.now()];
  return () => {
    const ms = Math.max(performance.now() - monotonicMs, Date.now() - wallMs);
    if (ms > insertTokens.markerCheckMsMax)
      throw new Error(`the check of what is stored is ${Math.round(ms / 1000)} s old: check again`);
  };
}
