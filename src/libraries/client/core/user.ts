// The current user of an app: a random id, and an identity once identified. Storage is authoritative and is read at each call, so tabs
// share one user. If tabs open at once before there is a user, each makes one, since at first none sees the others'. Storage keeps the last
// one written, and the tabs that made another one adopt it.

import { lengths } from '../../../contract/lengths.js';
import { parseJson } from './json.js';
import { clientLimits } from './limits.js';
import { isUserId, randomUserId } from './random-ids.js';
import { faultOfText, hasOwn } from './sanitize.js';
import type { SharedState } from './session.js';
import { couldNotSeeEachOther, msUntil } from './time.js';

export type User = {
  readonly id: string;
  /** Always an own property: a property that a page adds to every object must not count. */
  readonly identity: string | undefined;
  /** When the user was made, if there was none before; another tab may have made one too. */
  readonly firstMs?: number | undefined;
};

export function createUserState({ storage, key, clock, randomBytes, onReplaced }: SharedState) {
  let knownText: string | undefined;
  let known: User | undefined;

  /** The user, if there is one yet. */
  function peek(): User | undefined {
    const text = storage.get(key);
    if (text !== knownText) {
      const former = known;
      knownText = text;
      known = text === undefined ? undefined : parseUser(text);
      if (former !== undefined && known !== undefined) takeOver(former, known);
    }
    return known;
  }

  function takeOver(lost: User, kept: User): void {
    if (lost.id === kept.id || !couldNotSeeEachOther(lost.firstMs, kept.firstMs)) return;
    const { identity } = lost;
    // Both were already identified, as different people, so they are two users.
    if (identity !== undefined && kept.identity !== undefined && identity !== kept.identity) return;
    if (identity !== undefined) keep({ ...kept, identity });
    onReplaced(lost.id, kept.id);
  }

  function keep(user: User): boolean {
    known = user;
    knownText = JSON.stringify(user);
    return storage.set(key, knownText);
  }

  const first = (): User => ({
    id: randomUserId(randomBytes),
    identity: undefined,
    firstMs: clock.now(),
  });

  function begin(): User {
    const user = first();
    keep(user);
    return user;
  }

  return {
    peek,
    /** The user; makes one if there is none. */
    current: () => peek() ?? begin(),
    /** Gives the current user an identity. */
    identify: (identity: string) => void keep({ ...(peek() ?? first()), identity }),
    /** Begins a new user. */
    renew(identity?: string): void {
      const user = { id: randomUserId(randomBytes), identity };
      if (keep(user)) return;
      // Otherwise the former user would be back at the next start; having no user is better.
      storage.remove(key);
      keep(user);
    },
    /** For how many milliseconds another tab's user may still replace this one. */
    unsettledMs(): number {
      const { firstMs } = peek() ?? {};
      if (firstMs === undefined || storage.onChange === undefined) return 0;
      return msUntil(firstMs + clientLimits.settleMs, clientLimits.settleMs, clock);
    },
  };
}

/** The user in a stored text; undefined if the text is damaged, in which case a new user begins. */
function parseUser(text: string): User | undefined {
  const stored = parseJson(text);
  const { id, firstMs } = stored;
  const identity = hasOwn(stored, 'identity') ? stored.identity : undefined;
  if (!isUserId(id)) return undefined;
  // The server would refuse every message of a user whose identity it does not accept.
  if (identity !== undefined && faultOfText(identity, lengths.clientIdentityMax) !== undefined)
    return undefined;
  return { id, identity, firstMs: typeof firstMs === 'number' ? firstMs : undefined };
}
