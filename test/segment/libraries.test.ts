// The matrix of libraries and answers: what each library of Segment's protocol does when a request is refused, limited, or gets no answer.
// Libraries on npm run themselves. Of the others the test replays how their source sends, which SEGMENT.md names. Whatever a library does,
// the message behind the failed one is stored, and a repeated message is stored once.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import RudderAnalytics from '@rudderstack/rudder-sdk-node';
import { Analytics } from '@segment/analytics-node';
import { lengths } from '../../src/contract/limits.js';
import { createEnvironments, unlimited } from '../harness/accounts.js';
import { untilStored } from '../harness/ingestion.js';
import { listen } from '../harness/listen.js';
import { sharedSluice } from '../support/sluice.js';

type Failure = { readonly status?: number; readonly retryAfter?: string };
/** Without a status the connection is cut. */
const failures = {
  '400': { status: 400 },
  '413': { status: 413 },
  '429 with Retry-After': { status: 429, retryAfter: '1' },
  '429 without Retry-After': { status: 429 },
  '503': { status: 503, retryAfter: '1' },
  'a cut connection': {},
} satisfies Record<string, Failure>;
type FailureName = keyof typeof failures;
const failureNames = Object.keys(failures) as FailureName[];

/** What happens to the request that failed: it is sent again before any other, dropped, or kept until the next flush. */
type Fate = 'again' | 'dropped' | 'kept';
type Fates = Readonly<Record<FailureName, Fate>>;

/** What a library does after each failure. */
const fates = (bad: Fate, large: Fate, limited: Fate, away: Fate, cut: Fate = away): Fates => ({
  '400': bad,
  '413': large,
  '429 with Retry-After': limited,
  '429 without Retry-After': limited,
  '503': away,
  'a cut connection': cut,
});

/** Sends two messages, one request each, to an address; settles when it has done with both. */
type Library = (baseUrl: string, writeKey: string, events: readonly [string, string]) => Promise<void>;

const segment: Library = async (host, writeKey, events) => {
  const analytics = new Analytics({ host, writeKey, flushAt: 1 });
  analytics.on('error', () => undefined);
  for (const event of events) {
    await new Promise<void>((settle) => analytics.track({ userId: 'ada', event }, () => settle()));
  }
  await analytics.closeAndFlush({ timeout: 20_000 });
};

const rudder: Library = async (dataPlaneUrl, writeKey, events) => {
  // Without an errorHandler the library throws refusals, and the program ends.
  const analytics = new RudderAnalytics(writeKey, {
    dataPlaneUrl,
    flushAt: 20,
    errorHandler: () => undefined,
  });
  for (const event of events) {
    analytics.track({ userId: 'ada', event });
    await new Promise<void>((settle) => analytics.flush(() => settle()));
  }
};

/** Replays a library that is not on npm, without its pauses. */
function replayed(ways: Fates, attemptsMax: number): Library {
  return async (baseUrl, writeKey, events) => {
    const post = async (event: string): Promise<Fate | undefined> => {
      const message = { type: 'track', userId: 'ada', event, messageId: `${event} of ${baseUrl}` };
      const headers = { authorization: `Basic ${btoa(`${writeKey}:`)}`, 'content-type': 'application/json' };
      const body = JSON.stringify({ batch: [message], sentAt: new Date().toISOString(), writeKey });
      try {
        const reply = await fetch(`${baseUrl}/v1/batch`, { method: 'POST', headers, body });
        await reply.arrayBuffer();
        if (reply.ok) return undefined;
        const pause = reply.headers.has('retry-after') ? 'with' : 'without';
        return ways[(reply.status === 429 ? `429 ${pause} Retry-After` : `${reply.status}`) as FailureName];
      } catch {
        return ways['a cut connection'];
      }
    };
    let waiting: readonly string[] = events;
    // One flush, and the next one.
    for (let flush = 0; flush < 2; flush += 1) {
      const kept: string[] = [];
      for (const event of waiting) {
        let fate = await post(event);
        for (let attempt = 1; fate === 'again' && attempt < attemptsMax; attempt += 1)
          fate = await post(event);
        if (fate === 'kept') kept.push(event);
      }
      waiting = kept;
    }
  };
}

type Row = { readonly ways: Fates; readonly library: Library };
const replay = (ways: Fates, attemptsMax = 1): Row => ({ ways, library: replayed(ways, attemptsMax) });
const patient = fates('dropped', 'dropped', 'again', 'again');
const repeats = replay(patient, 10);
const keeps = replay(fates('dropped', 'dropped', 'kept', 'kept'));

/** By their names in the page's table. The comments name the file that decides, and its version or date. */
const rows: Readonly<Record<string, Row>> = {
  // publisher.ts 3.1.0
  '`@segment/analytics-node`': { ways: patient, library: segment },
  // index.js 3.0.13
  '`@rudderstack/rudder-sdk-node`': { ways: patient, library: rudder },
  // consumer.py 2025-02, 2026-04
  'Python, Segment, RudderStack': repeats,
  // analytics.go 2024-02, 2026-04
  'Go, Segment, RudderStack': replay(fates('again', 'again', 'again', 'again'), 10),
  // AnalyticsClient.java 2026-06
  'Java, Segment': repeats,
  // AnalyticsClient.java 2026-08
  'Java, RudderStack': repeats,
  // transport.rb 2026-05
  'Ruby, Segment': repeats,
  // retry_policy.rb 2026-07
  'Ruby, RudderStack': repeats,
  // LibCurl.php 2026-05
  'PHP, Segment': replay(fates('dropped', 'dropped', 'again', 'again', 'dropped'), 7),
  // HTTPClient.swift 2026-07
  iOS: replay(fates('dropped', 'kept', 'kept', 'kept')),
  // EventPipeline.kt 2026-04
  Android: keeps,
  // HTTPClient.cs 2026-01
  'C#, Unity': keeps,
  // SegmentDestination.ts 2026-06
  'React Native': keeps,
  // http_client.dart 2024-10
  Flutter: replay(fates('kept', 'kept', 'kept', 'kept')),
  // EventUploader.swift 2026-05
  'iOS, Android, RudderStack': repeats,
  // http.rs 2022-03
  Rust: replay(fates('dropped', 'dropped', 'dropped', 'dropped')),
};

const sluice = await sharedSluice();
const [appId = ''] = await createEnvironments(sluice, [unlimited]);

/** Passes requests on to the service, except the first one, which it answers with the failure. */
async function startFront(failure: Failure): Promise<{ url: string; requests(): number; stop(): void }> {
  let requests = 0;
  const server = createServer(async (request, reply) => {
    requests += 1;
    const body = await buffer(request);
    if (requests === 1) {
      if (failure.status === undefined) return request.socket.destroy();
      if (failure.retryAfter !== undefined) reply.setHeader('retry-after', failure.retryAfter);
      return reply.writeHead(failure.status, { 'content-type': 'application/json' }).end('{"message":"no"}');
    }
    const { authorization = '', 'content-encoding': encoding } = request.headers;
    const answer = await fetch(`${sluice.baseUrl}${request.url}`, {
      method: 'POST',
      headers: {
        authorization,
        'content-type': 'application/json',
        ...(encoding === undefined ? {} : { 'content-encoding': encoding }),
      },
      body: body as Uint8Array<ArrayBuffer>,
    });
    reply.writeHead(answer.status).end(await answer.text());
  });
  const { url, stop } = await listen(server);
  return { url, requests: () => requests, stop };
}

// Libraries that do the same are tested once.
for (const row of new Set(Object.values(rows))) {
  const { ways, library } = row;
  const [name = '', ...others] = Object.keys(rows).filter((each) => rows[each] === row);
  describe([name, ...others].join('; ').replaceAll('`', ''), { concurrency: true }, () => {
    for (const failure of failureNames) {
      test(`${failure}: the message is ${ways[failure]}, and the one behind it is stored`, async () => {
        const front = await startFront(failures[failure]);
        const [first, second] = [`${name} ${failure} first`, `${name} ${failure} second`];
        try {
          await library(front.url, appId, [first, second]);
        } finally {
          front.stop();
        }
        await untilStored(sluice);
        const stored = await sluice.rows<{ event: string; times: string }>(
          `SELECT event, toString(count()) AS times FROM events
           WHERE app_id = '${appId}' AND startsWith(event, '${name} ${failure} ') GROUP BY event ORDER BY event`,
        );
        const isStored = ways[failure] !== 'dropped';
        assert.deepEqual(
          stored.map(({ event, times }) => [event, times]),
          [...(isStored ? [[first, '1']] : []), [second, '1']],
        );
        assert.equal(front.requests(), isStored ? 3 : 2);
      });
    }
  });
}

describe('a bad message neither ends the program nor takes the rest of its batch with it', () => {
  const tooLong = 'x'.repeat(lengths.eventMax + 1);
  const isStored = async (event: string) => {
    await untilStored(sluice);
    const sql = `SELECT event FROM events WHERE app_id = '${appId}' AND event = '${event}'`;
    assert.deepEqual(await sluice.rows(sql), [{ event }]);
  };

  test('@segment/analytics-node', async () => {
    const analytics = new Analytics({ host: sluice.baseUrl, writeKey: appId });
    for (const event of [tooLong, 'behind, Segment']) analytics.track({ userId: 'ada', event });
    await analytics.closeAndFlush({ timeout: 20_000 });
    await isStored('behind, Segment');
  });

  test('@rudderstack/rudder-sdk-node, without an errorHandler', async () => {
    const analytics = new RudderAnalytics(appId, { dataPlaneUrl: sluice.baseUrl, flushAt: 20 });
    for (const event of [tooLong, 'behind, RudderStack']) analytics.track({ userId: 'ada', event });
    await new Promise<void>((settle) => analytics.flush(() => settle()));
    await isStored('behind, RudderStack');
  });
});

test("the page's table of libraries has these rows", () => {
  const page = readFileSync(new URL('../../../src/http/SEGMENT.md', import.meta.url), 'utf8');
  const [, table = ''] = page.split('| library | 400, 401, 413 |');
  const names = [...table.matchAll(/^\| ([^|]+?) \|/gm)].map(([, cell]) => cell);
  assert.deepEqual(
    names.filter((cell) => cell !== '---'),
    Object.keys(rows),
  );
});

test("RudderStack's libraries for phones and pages learn that they may send, and get no other destinations", async () => {
  for (const [path, headers] of [
    ['/sourceConfig?p=android&v=3.2.1', { authorization: `Basic ${btoa(`${appId}:`)}` }],
    [`/sourceConfig/?p=npm&v=3.31.4&writeKey=${appId}`, {}],
  ] as const) {
    const reply = await fetch(`${sluice.baseUrl}${path}`, { headers });
    assert.equal(reply.status, 200);
    assert.equal(reply.headers.get('access-control-allow-origin'), '*');
    assert.match(reply.headers.get('cache-control') ?? '', /^private/, 'no shared cache keeps a write key');
    const { source } = (await reply.json()) as { source: Record<string, unknown> };
    const { id, name, writeKey, workspaceId, enabled, destinations, updatedAt } = source;
    assert.deepEqual([id, writeKey, enabled, destinations], [appId, appId, true, []]);
    assert.ok([name, workspaceId, updatedAt].every((text) => typeof text === 'string'));
  }
});
