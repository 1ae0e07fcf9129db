// The current session of an app: a random id that lasts until nothing was called for the idle time. Storage is
// the truth, so that tabs share one session and pages continue it. Tabs that find it over at the same moment each
// begin one; storage keeps the last that was written, and the other tabs take that over.

import type { Clock, KeyValueStorage, RandomBytes } from './adapters.js';
import { isUserId, randomUserId } from './random-ids.js';
import { madeAtOnce } from './time.js';

export type Session = {
  /** The id of the session, which a call uses now: idle time begins anew. */
  use(): string;
  /** Begins a new session. */
  renew(): string;
  /** Looks whether another tab's session took the place of this one. */
  look(): void;
};

export type SessionOptions = {
  readonly storage: KeyValueStorage;
  readonly key: string;
  readonly clock: Clock;
  readonly randomBytes: RandomBytes;
  readonly idleMs: () => number;
  /** Told that a session gave way to the one that another tab began at the same time. */
  readonly onReplaced: (lostId: string, keptId: string) => void;
};

/** `begunMs`: when it began, if it did because there was none or the last one was over. */
type State = { readonly id: string; readonly usedMs: number; readonly begunMs: number | undefined };

/** A use is written down when the last one written is older than this. */
const writeEveryMs = 1000;

export function createSession({
  storage,
  key,
  clock,
  randomBytes,
  idleMs,
  onReplaced,
}: SessionOptions): Session {
  let known: State | undefined;

  function read(): State | undefined {
    const former = known;
    known = parseState(storage.get(key) ?? '');
    if (former !== undefined && known !== undefined && former.id !== known.id) {
      if (madeAtOnce(former.begunMs, known.begunMs)) onReplaced(former.id, known.id);
    }
    return known;
  }

  function keep(id: string, begunMs: number | undefined): string {
    known = { id, usedMs: clock.now(), begunMs };
    storage.set(key, `${id} ${known.usedMs}${begunMs === undefined ? '' : ` ${begunMs}`}`);
    return id;
  }

  function use(): string {
    const state = read();
    // A clock that was set back by more than the idle time ends the session too, or it might never end.
    const idle = Math.abs(clock.now() - Number(state?.usedMs));
    if (state === undefined || !(idle <= idleMs())) return keep(randomUserId(randomBytes), clock.now());
    return idle < writeEveryMs ? state.id : keep(state.id, state.begunMs);
  }

  return { use, renew: () => keep(randomUserId(randomBytes), undefined), look: () => void read() };
}

/** The session in a stored text, `id used` or `id used begun`; undefined when there is none in it. */
function parseState(text: string): State | undefined {
  const [id, used, begun] = text.split(' ');
  if (!isUserId(id)) return undefined;
  return { id, usedMs: Number(used), begunMs: begun === undefined ? undefined : Number(begun) };
}
