// The current session of an app: a random id that lasts until no call was made for the idle time. It is read from storage, so tabs share it
// and pages continue it. If several tabs begin one at the same moment, storage keeps the last one written, and the other tabs adopt that
// one.

import type { Clock, KeyValueStorage, RandomBytes } from './adapters.js';
import { isUserId, randomUserId } from './random-ids.js';
import { couldNotSeeEachOther } from './time.js';

/** What the tabs of an app share in storage under a key: the session, or the user. */
export type SharedState = {
  readonly storage: KeyValueStorage;
  readonly key: string;
  readonly clock: Clock;
  readonly randomBytes: RandomBytes;
  /** Called when this page's was replaced by one that another tab began at the same time. */
  readonly onReplaced: (lostId: string, keptId: string) => void;
};

type SessionOptions = SharedState & { readonly idleMs: () => number };

/** `begunMs`: when the session began; only if there was none before, or the previous one had ended. */
type State = { readonly id: string; readonly usedMs: number; readonly begunMs: number | undefined };

/** The time of the last use is written at most once in this time. */
const writeEveryMs = 1000;

export function createSession({ storage, key, clock, randomBytes, idleMs, onReplaced }: SessionOptions) {
  let known: State | undefined;

  function read(): State | undefined {
    const former = known;
    known = parseState(storage.get(key) ?? '');
    if (former !== undefined && known !== undefined && former.id !== known.id) {
      if (couldNotSeeEachOther(former.begunMs, known.begunMs)) onReplaced(former.id, known.id);
    }
    return known;
  }

  function keep(id: string, begunMs: number | undefined): string {
    known = { id, usedMs: clock.now(), begunMs };
    storage.set(key, `${id} ${known.usedMs}${begunMs === undefined ? '' : ` ${begunMs}`}`);
    return id;
  }

  /** The id of the session for a call that is made now. The idle time starts again. */
  function use(): string {
    const state = read();
    // If the clock was set back by more than the idle time, the session ends too; otherwise it might never end.
    const idle = Math.abs(clock.now() - Number(state?.usedMs));
    if (state === undefined || !(idle <= idleMs())) return keep(randomUserId(randomBytes), clock.now());
    return idle < writeEveryMs ? state.id : keep(state.id, state.begunMs);
  }

  return {
    use,
    /** Begins a new session. */
    renew: () => keep(randomUserId(randomBytes), undefined),
    /** Checks whether another tab's session has replaced this one. */
    noticeReplacement: () => void read(),
  };
}

/** The session in a stored text, `id used` or `id used begun`; undefined if the text is not a session. */
function parseState(text: string): State | undefined {
  const [id, used, begun] = text.split(' ');
  if (!isUserId(id)) return undefined;
  return { id, usedMs: Number(used), begunMs: begun === undefined ? undefined : Number(begun) };
}
