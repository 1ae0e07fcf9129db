// The library under random faults of the network, the server and its own pages. Every event must be stored once. The last
// value of each user property counts. An identification arrives before everything later of its user. Every request stays
// within its bounds.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Transport, TransportAnswer } from '../../src/libraries/client/core/adapters.js';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { createWorld, failure, type TestPage } from '../support/client-world.js';
import fc from '../support/fast-check.js';

type Fault =
  | 'none'
  | 'lost request'
  | 'lost answer'
  | 'busy'
  | 'asked to wait'
  | 'too large'
  | 'garbage'
  | 'limited'
  | 'never answered';

type Step =
  | {
      readonly do: 'track' | 'identify' | 'reset' | 'hide' | 'crash' | 'open' | 'resume';
      readonly tab: number;
    }
  | { readonly do: 'set'; readonly tab: number; readonly key: string }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'jump'; readonly ms: number }
  | { readonly do: 'fault'; readonly fault: Fault };

const tab = fc.nat(2);
const faults: readonly Fault[] = [
  'none',
  'lost request',
  'lost answer',
  'busy',
  'asked to wait',
  'too large',
  'garbage',
  'limited',
  'never answered',
];

function steps(tabs: fc.Arbitrary<number>, more: fc.Arbitrary<Step>[] = []): fc.Arbitrary<Step[]> {
  return fc.array(
    fc.oneof(
      { weight: 8, arbitrary: fc.record({ do: fc.constant('track' as const), tab: tabs }) },
      {
        weight: 4,
        arbitrary: fc.record({ do: fc.constant('set' as const), tab: tabs, key: fc.constantFrom('a', 'b') }),
      },
      {
        weight: 6,
        arbitrary: fc.record({
          do: fc.constant('wait' as const),
          ms: fc.constantFrom(1, 500, 3_000, 5_000, 30_000),
        }),
      },
      {
        weight: 4,
        arbitrary: fc.record({ do: fc.constant('fault' as const), fault: fc.constantFrom(...faults) }),
      },
      {
        weight: 6,
        arbitrary: fc.record({
          do: fc.constantFrom(
            'identify' as const,
            'reset' as const,
            'hide' as const,
            'crash' as const,
            'open' as const,
            'resume' as const,
          ),
          tab: tabs,
        }),
      },
      ...more.map((arbitrary) => ({ weight: 2, arbitrary })),
    ),
    { minLength: 5, maxLength: 60 },
  );
}

/** Runs the steps, then heals everything and waits; checks what must hold. */
async function check(sequence: readonly Step[]): Promise<void> {
  const world = createWorld('first');
  const { clock, server } = world;
  let fault: Fault = 'none';
  const respond = (url: string, body: string): TransportAnswer | undefined => {
    const request = { url, body, request: JSON.parse(body) };
    assert.ok(
      request.request.messages.length <= clientLimits.batchMessagesMax && request.request.messages.length > 0,
    );
    if (fault === 'lost request') return failure(0);
    if (fault === 'busy') return failure(503, 'overloaded');
    if (fault === 'asked to wait') return failure(429, 'rate_limited', '30');
    if (fault === 'too large' && request.request.messages.length > 1) return failure(413, 'body_too_large');
    server.answerMessage = (message) =>
      fault === 'limited' && message.type === 'user_properties'
        ? { id: message.id, status: 'limited', code: 'rate_limited', retry_after: 7 }
        : undefined;
    const answer = server.take(url, body);
    if (fault === 'never answered') return undefined;
    if (fault === 'lost answer') return failure(0);
    return fault === 'garbage' ? { status: 200, body: '<html>' } : answer;
  };

  const pages: (TestPage | undefined)[] = [undefined, undefined, undefined];
  function open(at: number): TestPage {
    let ended = false;
    const never = new Promise<TransportAnswer>(() => {});
    const transport: Transport = {
      send: (url, body, timeoutMs) => {
        const answer = respond(url, body);
        const timedOut = new Promise<TransportAnswer>((resolve) => {
          clock.setTimer(answer === undefined ? timeoutMs : 10, () => ended || resolve(answer ?? failure(0)));
        });
        return { answer: timedOut, outlivesPage: body.length % 2 === 0 };
      },
      sendAtExit: (url, body) => {
        if (body.length % 5 === 0) return undefined;
        const answer = respond(url, body);
        return body.length % 3 === 0 || answer === undefined
          ? never
          : Promise.resolve().then(() => (ended ? never : answer));
      },
    };
    const page = world.start({ transport });
    const crash = page.crash;
    pages[at] = {
      ...page,
      crash: () => {
        ended = true;
        crash();
      },
    };
    return pages[at] as TestPage;
  }

  const tracked: string[] = [];
  const expected = new Map<string, Record<string, number>>();
  let value = 0;
  for (const step of sequence) {
    // Calls of different tabs in one millisecond have no order.
    await clock.advance(1);
    if (step.do === 'wait') await clock.advance(step.ms);
    else if (step.do === 'jump') clock.set(clock.now() + step.ms);
    else if (step.do === 'fault') fault = step.fault;
    else {
      const page = pages[step.tab] ?? open(step.tab);
      if (step.do === 'open' || step.do === 'crash') {
        page.crash();
        pages[step.tab] = undefined;
      } else if (step.do === 'track') {
        tracked.push(`e${tracked.length}`);
        page.client.track(tracked.at(-1) as string);
      } else if (step.do === 'set') {
        const user = page.client.userId as string;
        page.client.addUserProperties({ [step.key]: ++value });
        expected.set(user, { ...expected.get(user), [step.key]: value });
      } else if (step.do === 'identify') page.client.identify(`person ${++value}`);
      else if (step.do === 'reset') page.client.resetIdentity();
      else if (step.do === 'hide') page.hide();
      else page.resume();
    }
  }

  fault = 'none';
  for (const page of pages) page?.crash();
  const last = open(0);
  await clock.advance(2 * 3_600_000);

  assert.deepEqual(
    [...world.texts.keys()].filter((key) => key.includes(':q:')),
    [],
    'nothing waits any more',
  );
  assert.deepEqual(server.events().sort(), [...tracked].sort(), 'every event is stored once');
  const properties = new Map<string, Record<string, unknown>>();
  const identified = new Map<string, number>();
  for (const [at, message] of server.stored.entries()) {
    if (message.type === 'identify') identified.set(message.user_id, at);
    if (message.type === 'user_properties') {
      properties.set(message.user_id, { ...properties.get(message.user_id), ...message.properties });
    }
    if (message.type === 'event' && message.identity !== undefined) {
      assert.ok(identified.has(message.user_id), 'an identification precedes what follows of its user');
    }
  }
  assert.deepEqual(properties, expected, 'of each user property the last value stands');
  assert.equal(last.client.droppedCount, 0);
  assert.equal(server.stored.length, new Set(server.stored.map(({ id }) => id)).size);
}

const runs = { numRuns: 300, includeErrorInReport: true };

test('one page at a time: whatever fails, every message is stored once, in order', async () => {
  await fc.assert(fc.asyncProperty(steps(fc.constant(0)), check), runs);
});

test('three tabs: whatever fails, every message is stored once, in order', async () => {
  await fc.assert(fc.asyncProperty(steps(tab), check), runs);
});

test('a clock that jumps back and forth loses and repeats nothing', async () => {
  const jump = fc.record({
    do: fc.constant('jump' as const),
    ms: fc.constantFrom(-86_400_000, -3_600_000, -10_000, 10_000, 3_600_000),
  });
  await fc.assert(fc.asyncProperty(steps(fc.constant(0), [jump]), check), runs);
});
