// The life of a visitor as a property test: random calls in random tabs, reloads and crashes, while storage fills up or is emptied and
// the network fails in every way. The model says what must have arrived, for whom and in which session. In any order of steps, nothing
// arrives twice, for another user, or from a visitor who had opted out.

import assert from 'node:assert/strict';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import fc from './fast-check.js';

export const tabsMax = 3;

export type Network =
  | 'works'
  | 'away'
  | 'loses answers'
  | 'answers for none'
  | 'busy'
  | 'asks to wait'
  | 'answers in HTML';

export type Step =
  | { readonly do: 'track' | 'reset' | 'optOut' | 'optIn' | 'open' | 'leave' | 'crash'; readonly tab: number }
  /** Opts out, tracks an event, and opts in again. */
  | { readonly do: 'opt out for a moment'; readonly tab: number }
  | { readonly do: 'identify'; readonly tab: number; readonly identity: string }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'network'; readonly network: Network }
  | { readonly do: 'storage'; readonly state: 'works' | 'full'; readonly tab: number }
  | { readonly do: 'empty storage'; readonly tab: number };

export type LifeOptions = {
  readonly stepsMin: number;
  readonly stepsMax: number;
  readonly waitsMs: readonly number[];
  readonly networks: readonly Network[];
  readonly hasFaultsOfStorage: boolean;
};

export function stepsOfLife(options: LifeOptions): fc.Arbitrary<Step[]> {
  const tab = fc.constantFrom(0, 0, 0, 1, 1, 2);
  const one = <T>(...values: T[]) => fc.constantFrom(...values);
  const calls: fc.Arbitrary<Step> = fc.oneof(
    { weight: 10, arbitrary: fc.record({ do: one('track' as const), tab }) },
    {
      weight: 3,
      arbitrary: fc.record({
        do: one('identify' as const),
        tab,
        identity: one('ada@example.com', 'bob@example.com'),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: one('reset' as const), tab }) },
    { weight: 2, arbitrary: fc.record({ do: one('optOut' as const, 'optIn' as const), tab }) },
    { weight: 1, arbitrary: fc.record({ do: one('opt out for a moment' as const), tab }) },
    {
      weight: 4,
      arbitrary: fc.record({ do: one('open' as const, 'leave' as const, 'crash' as const), tab }),
    },
    { weight: 6, arbitrary: fc.record({ do: one('wait' as const), ms: one(...options.waitsMs) }) },
    { weight: 3, arbitrary: fc.record({ do: one('network' as const), network: one(...options.networks) }) },
  );
  const faultsOfStorage: fc.Arbitrary<Step> = fc.oneof(
    fc.record({ do: one('storage' as const), state: one('works' as const, 'full' as const), tab }),
    fc.record({ do: one('empty storage' as const), tab }),
  );
  const steps = options.hasFaultsOfStorage
    ? fc.oneof({ weight: 5, arbitrary: calls }, { weight: 1, arbitrary: faultsOfStorage })
    : calls;
  return fc.array(steps, { minLength: options.stepsMin, maxLength: options.stepsMax });
}

/** The user that a page shows after a call. */
export type ShownUser = { readonly userId: string | undefined; readonly identity: string | undefined };

/** What the model knows of an event that was tracked. */
type Tracked = ShownUser & {
  readonly name: string;
  readonly session: number;
  /** Undefined once the page that made the call has ended: a later page in the same tab does not know the event. */
  tab: number | undefined;
  /** Whether the event may be only in its page's memory. */
  atRisk: boolean;
  /** Whether the event may be lost, with its page or because the visitor opted out. */
  mayBeLost: boolean;
  /** Whether the visitor opted out before the event was sent. */
  isUnwanted?: true;
};

/** An event as it arrived. `user_id` is undefined where it is not known. */
export type ArrivedEvent = {
  readonly event: string;
  readonly user_id: string | undefined;
  readonly identity: string | undefined;
  readonly session_id: string;
};

export type LifeWorld = {
  now(): number;
  readonly idleMs: number;
  isStored(name: string): boolean;
};

/** The model of one life. Tests report each call to it after the call. */
export function createLifeModel(world: LifeWorld) {
  const events: Tracked[] = [];
  /**
   * The users, with when they were created if that was because there was none. For users that began by an identity or a reset the time
   * is undefined.
   */
  const made = new Map<string, { readonly fromMs: number; readonly toMs: number } | undefined>();
  /** When storage was first emptied: since then any page may have created a user. */
  let emptiedMs = Number.POSITIVE_INFINITY;
  let optedOut = false;
  let session = 0;
  let usedMs = Number.NEGATIVE_INFINITY;
  let storageFailed = false;

  const isStored = ({ name }: Tracked): boolean => world.isStored(name);

  /** A session ends after a long time without calls; every call that records something prolongs it. */
  function use(): number {
    const now = world.now();
    if (now - usedMs > world.idleMs) session++;
    usedMs = now;
    return session;
  }

  function beginSession(): void {
    session++;
    usedMs = world.now();
  }

  function meet(userId: string | undefined, ms: number | undefined): void {
    if (userId === undefined || made.has(userId)) return;
    made.set(userId, ms === undefined ? undefined : { fromMs: Math.min(ms, emptiedMs), toMs: ms });
  }

  /** Whether these two users count as one, because tabs that did not see each other created them. */
  function areOne(userId: string | undefined, other: string | undefined): boolean {
    if (userId === other || other === undefined) return true;
    // A user that was never shown was created by a page that recorded nothing before it learned of another.
    meet(other, world.now());
    const [mine, others] = [made.get(userId ?? ''), made.get(other)];
    if (mine === undefined || others === undefined) return false;
    const apartMs = Math.max(mine.fromMs - others.toMs, others.fromMs - mine.toMs);
    return apartMs <= clientLimits.unseenMs;
  }

  function checkEvent(tracked: Tracked, arrived: ArrivedEvent | undefined): void {
    const { name, userId, identity } = tracked;
    if (tracked.isUnwanted) {
      assert.equal(arrived, undefined, `${name} was not sent before its visitor opted out`);
    } else if (userId === undefined) {
      assert.equal(arrived, undefined, `${name} was tracked while opted out`);
    } else if (arrived === undefined) {
      assert.ok(tracked.mayBeLost, `${name} must have arrived`);
    } else {
      assert.equal(arrived.identity, identity, `the identity of ${name}`);
      if (!areOne(userId, arrived.user_id)) assert.equal(arrived.user_id, userId, `the user of ${name}`);
    }
  }

  return {
    nextName: () => `e${events.length}`,
    /** Reports that a page shows this user. `ms` is the time if the page may have created the user just now. */
    met: meet,
    isOptedOut: () => optedOut,
    /** Whether storage has failed: since then each tab may have its own view of it. */
    hasStorageFailed: () => storageFailed,
    /** The user is the one from before the call, since the call's writes may make another tab store its user. */
    tracked(tab: number, { userId, identity }: ShownUser, isStorageFull: boolean): void {
      const name = `e${events.length}`;
      if (optedOut) {
        events.push({ ...nobody, name, tab });
        return;
      }
      meet(userId, world.now());
      events.push({ name, userId, identity, session: use(), tab, atRisk: isStorageFull, mayBeLost: false });
    },
    identified(former: string | undefined, { userId, identity }: ShownUser): void {
      if (former === identity || optedOut) return;
      meet(userId, former === undefined ? world.now() : undefined);
      if (former === undefined) use();
      else beginSession();
    },
    wasReset(former: string | undefined, { userId, identity }: ShownUser): void {
      assert.equal(identity, undefined);
      if (former === undefined) return;
      meet(userId, undefined);
      beginSession();
    },
    chose(choice: 'optOut' | 'optIn'): void {
      optedOut = choice === 'optOut';
      if (!optedOut) return;
      // After a later opt-in there is another user, in another session.
      usedMs = Number.NEGATIVE_INFINITY;
      for (const event of events) {
        if (isStored(event)) continue;
        event.mayBeLost = true;
        if (!storageFailed) event.isUnwanted = true;
      }
    },
    storageIsFull(): void {
      storageFailed = true;
    },
    /** Storage was emptied: from now on only an event's own page can put it back. */
    emptied(isOpen: (tab: number) => boolean): void {
      storageFailed = true;
      emptiedMs = Math.min(emptiedMs, world.now());
      for (const event of events) {
        if (isStored(event)) continue;
        event.atRisk = true;
        if (event.tab === undefined || !isOpen(event.tab)) event.mayBeLost = true;
      }
    },
    ended(tab: number): void {
      for (const event of events) {
        if (event.tab !== tab) continue;
        event.tab = undefined;
        if (event.atRisk && !isStored(event)) event.mayBeLost = true;
      }
    },
    /** The events that must arrive. */
    due: (): string[] =>
      events.filter(({ userId, mayBeLost }) => userId !== undefined && !mayBeLost).map(({ name }) => name),
    check(arrived: readonly ArrivedEvent[], hasSessions: boolean): void {
      const byName = new Map(arrived.map((one) => [one.event, one]));
      assert.equal(byName.size, arrived.length, 'nothing arrives twice');
      const sessionOf = new Map<number, string>();
      for (const event of events) {
        const found = byName.get(event.name);
        checkEvent(event, found);
        if (found === undefined || !hasSessions) continue;
        const known = sessionOf.get(event.session) ?? found.session_id;
        assert.equal(found.session_id, known, `the session of ${event.name}`);
        sessionOf.set(event.session, known);
      }
      assert.equal(new Set(sessionOf.values()).size, sessionOf.size, 'different sessions have different ids');
    },
  };
}

const nobody = {
  userId: undefined,
  identity: undefined,
  session: 0,
  atRisk: false,
  mayBeLost: true,
} as const;
