// Random histories of suppressing, freeing, tracking and identifying over two API processes. Several run at a time, so each
// process has to catch up all the time. A model says for each record whether it has to be stored. A record that is sent
// while a suppression is submitted may be stored or not; one that is sent after its answer may not.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { collect, event, identify, request } from '../harness/collect.js';
import { getToken } from '../harness/deletion.js';
import { isAccepted, paths, post, untilStored } from '../harness/ingestion.js';
import { setSuppressed } from '../harness/suppression.js';
import fc from '../support/fast-check.js';
import { ownSluice } from '../support/sluice.js';

const historiesAtOnce = 8;

const sluice = await ownSluice({ apiProcesses: 2 });
// Half of the histories share an account.
const one = await createTestAccount(sluice, 'One');
const two = await createTestAccount(sluice, 'Two');
const accounts: readonly TestAccount[] = [one, two];
const urls: readonly string[] = sluice.api.map(({ baseUrl }) => baseUrl);
for (const appId of [...one.appIds, ...two.appIds])
  await sluice.admin('environments', 'set', appId, '--limit', 'track=none');

/** Users of a history: identities, and anonymous users. */
const name = fc.constantFrom('i0', 'i1', 'i2', 'a0', 'a1', 'a2');
const environment = fc.nat(1);
const process = fc.nat(1);
const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('track' as const), name, environment, process }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('bulk' as const), environment, process }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('identify' as const),
      anonymous: fc.nat(2),
      identity: fc.nat(2),
      environment,
      process,
      byCollect: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('suppress' as const), name, process, crowd: fc.boolean() }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('free' as const), name, process }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

/** The names for whose sake each "<name>@<environment>" is suppressed. The environment `*` means all of them. */
class Model {
  readonly #roots = new Map<string, Set<string>>();
  /** The first identity of an anonymous user in an environment. */
  readonly #merged = new Map<string, string>();

  has(name: string, environment: number): boolean {
    return this.#rootsOf(name, environment).size > 0;
  }

  suppress(name: string): void {
    this.#add(`${name}@*`, name);
    for (const environment of [0, 1]) {
      const identity = name.startsWith('i') ? name : this.#merged.get(`${name}@${environment}`);
      if (identity === undefined) continue;
      if (identity !== name) this.#add(`${identity}@${environment}`, name);
      for (const [place, merged] of this.#merged)
        if (merged === identity && place.endsWith(`@${environment}`)) this.#add(place, name);
    }
  }

  free(name: string): void {
    const roots = new Set([0, 1].flatMap((environment) => [...this.#rootsOf(name, environment)]));
    for (const its of this.#roots.values()) for (const root of roots) its.delete(root);
  }

  identify(anonymous: string, identity: string, environment: number): boolean {
    if (this.has(identity, environment)) {
      if (!this.has(anonymous, environment))
        for (const root of this.#rootsOf(identity, environment))
          this.#add(`${anonymous}@${environment}`, root);
      return false;
    }
    if (this.has(anonymous, environment)) return false;
    const place = `${anonymous}@${environment}`;
    if (!this.#merged.has(place)) this.#merged.set(place, identity);
    return true;
  }

  #rootsOf(name: string, environment: number): Set<string> {
    const places = [`${name}@*`, `${name}@${environment}`];
    return new Set(places.flatMap((place) => [...(this.#roots.get(place) ?? [])]));
  }

  #add(place: string, root: string): void {
    const roots = this.#roots.get(place) ?? new Set();
    this.#roots.set(place, roots.add(root));
  }
}

let histories = 0;

/** Carries out a history; settles with what each of its records has to be: stored, or in no table. */
async function play(steps: readonly Step[], number: number): Promise<Map<string, 'stored' | 'absent'>> {
  const account = accounts[number % 2] as TestAccount;
  const token = await getToken(sluice, account);
  histories += 1;
  const prefix = `h${histories}`;
  const base = 1_000_000 + histories * 100;
  const model = new Model();
  const fates = new Map<string, 'stored' | 'absent'>();
  const identityOf = (user: string) => `${prefix}-${user}@example.com`;
  const userIdOf = (user: string) => String(base + Number(user.slice(1)));
  const named = (user: string) =>
    user.startsWith('i') ? { identity: identityOf(user) } : { user_id: userIdOf(user) };
  const send = async (process: number, path: string, body: object) => {
    const answer = await post(urls[process] as string, path, body);
    assert.ok(isAccepted(answer), answer.text);
  };
  const expect = (event: string, user: string, environment: number) =>
    fates.set(event, model.has(user, environment) ? 'absent' : 'stored');

  for (const [at, what] of steps.entries()) {
    const event_ = `${prefix} ${at}`;
    if (what.kind === 'suppress' || what.kind === 'free') {
      const crowd = what.kind === 'suppress' && what.crowd;
      const sent = !crowd
        ? []
        : urls.flatMap((_, process) =>
            [0, 1].map((environment) =>
              send(process, paths.track, {
                app_id: account.appIds[environment],
                event: `crowd ${event_}`,
                ...named(what.name),
              }),
            ),
          );
      const done = setSuppressed(
        urls[what.process] as string,
        token,
        [named(what.name)],
        what.kind === 'suppress',
      );
      await Promise.all([done, ...sent]);
      if (what.kind === 'suppress') model.suppress(what.name);
      else model.free(what.name);
      continue;
    }
    const app_id = account.appIds[what.environment] as string;
    if (what.kind === 'track') {
      expect(event_, what.name, what.environment);
      await send(what.process, paths.track, { app_id, event: event_, ...named(what.name) });
    } else if (what.kind === 'bulk') {
      const events = ['i0', 'a0', 'i1', 'a1', 'i2', 'a2'].map((user) => {
        expect(`${event_} ${user}`, user, what.environment);
        return { event: `${event_} ${user}`, ...named(user) };
      });
      await send(what.process, paths.track, { app_id, events });
    } else {
      const [anonymous, identity] = [`a${what.anonymous}`, `i${what.identity}`];
      model.identify(anonymous, identity, what.environment);
      const ids = [userIdOf(anonymous), identityOf(identity)] as const;
      if (what.byCollect) {
        // The next event in the same request belongs to a user who has just been identified.
        expect(event_, anonymous, what.environment);
        const messages = [identify(...ids), event({ event: event_, user_id: ids[0] })];
        const reply = await collect(urls[what.process] as string, request(app_id, messages));
        assert.deepEqual(
          reply.json.messages?.map(({ status }) => status),
          ['stored', 'stored'],
          reply.text,
        );
      } else {
        await send(what.process, paths.identify, { app_id, user_id: ids[0], identity: ids[1] });
      }
    }
  }
  return fates;
}

test('exactly the right records are stored, whatever is suppressed, freed, identified and sent over two processes', async () => {
  const several = fc.array(fc.array(step, { minLength: 8, maxLength: 22 }), {
    minLength: historiesAtOnce,
    maxLength: historiesAtOnce,
  });
  let absent = 0;
  await fc.assert(
    fc.asyncProperty(several, async (all) => {
      const fates = await Promise.all(all.map(play));
      await untilStored(sluice);
      const rows = await sluice.rows<{ event: string }>(`SELECT event FROM stored_events WHERE app_id != ''`);
      const stored = new Set(rows.map(({ event }) => event));
      for (const [event, fate] of fates.flatMap((each) => [...each])) {
        if (fate === 'absent') absent += 1;
        assert.equal(stored.has(event) ? 'stored' : 'absent', fate, event);
      }
    }),
    { numRuns: 2, endOnFailure: true },
  );
  assert.ok(absent > 10, `${absent} records had to be left out`);
});
