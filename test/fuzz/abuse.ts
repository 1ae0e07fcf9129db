// One account's abuse must not hurt another account. A neighbour sends ten events a second, at first alone, then while the other account
// abuses one endpoint after another, and finally all at once: none of its events may be refused, and its p99 may be at most eight times
// that of the time alone. Limits by address are off, as if the abuse came from many addresses.

import { randomInt } from 'node:crypto';
import { request } from 'node:http';
import { gzipSync } from 'node:zlib';
import { counts } from '../../src/contract/limits.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { deletionPaths, getToken } from '../harness/deletion.js';
import { paths } from '../harness/ingestion.js';
import type { ApiHandle, SluiceHandle } from '../harness/services.js';
import { setSuppressed, suppressionPath } from '../harness/suppression.js';
import { exportPath, submitExport, untilExportComplete } from '../harness/user-export.js';
import { signedIn } from '../support/console.js';
import { type Neighbour, startNeighbour } from './neighbour.js';
import { quantile } from './process-figures.js';

export type Abused = {
  readonly name: string;
  /** Answers to the abuse by status; 0 means no answer. */
  readonly statuses: Readonly<Record<number, number>>;
  /** The neighbour's requests meanwhile. */
  readonly requests: number;
  readonly refused: readonly string[];
  readonly p50: number;
  readonly p99: number;
};

/** `own`: the neighbour alone. */
export type Abuses = { readonly own: Abused; readonly all: readonly Abused[] };

const timesMax = 8;
const pauseMs = 100;
const aloneMs = 20_000;
const abuseMs = 10_000;
/** How long a request of the abuse may take before it is given up. */
const requestMsMax = 15_000;
/** For how long a slow reader reads nothing, before it disconnects. */
const readMs = 5_000;

type Abuse = {
  readonly name: string;
  /** How many requests are under way at once. */
  readonly lanes: number;
  /** Sends a request; settles with the status of its answer. */
  readonly send: () => Promise<number>;
};

export async function abuseDeployment(sluice: SluiceHandle): Promise<Abuses> {
  const [api] = sluice.api as [ApiHandle];
  const friend = await createTestAccount(sluice, 'Neighbour', ['Main Production']);
  const hostile = await createTestAccount(sluice, 'Hostile', ['Main Production']);
  const abuses = await abusesOf(sluice, hostile);
  const [appId = ''] = friend.appIds;
  const neighbour = startNeighbour({ baseUrl: api.baseUrl, appId, pid: api.pid, pauseMs });
  try {
    const alone: Abuse = { name: 'nothing', lanes: 0, send: async () => 0 };
    const own = await beside(neighbour, [alone], aloneMs);
    const all: Abused[] = [];
    for (const abuse of abuses) all.push(await beside(neighbour, [abuse], abuseMs));
    all.push(await beside(neighbour, abuses, 2 * abuseMs));
    return { own, all };
  } finally {
    await neighbour.stop();
  }
}

/** Abuses for a while; settles with the neighbour's results until the last request of the abuse is answered. */
async function beside(neighbour: Neighbour, abuses: readonly Abuse[], ms: number): Promise<Abused> {
  await neighbour.report();
  const endMs = performance.now() + ms;
  const statuses: Record<number, number> = {};
  const lane = async ({ send }: Abuse) => {
    while (performance.now() < endMs) {
      const status = await send().catch(() => 0);
      statuses[status] = (statuses[status] ?? 0) + 1;
    }
  };
  const time = new Promise((settle) => setTimeout(settle, ms));
  const lanes = abuses.flatMap((abuse) => Array.from({ length: abuse.lanes }, () => lane(abuse)));
  await Promise.all([time, ...lanes]);
  const { tookMs, faults, unknown } = await neighbour.report();
  return {
    name: abuses.length === 1 ? (abuses[0] as Abuse).name : 'all at once',
    statuses,
    requests: tookMs.length,
    refused: [...faults, ...Array(unknown).fill('answered 503: unknown')],
    p50: quantile(tookMs, 0.5),
    p99: quantile(tookMs, 0.99),
  };
}

const newUserId = () => String(randomInt(2 ** 47));

async function abusesOf(sluice: SluiceHandle, hostile: TestAccount): Promise<Abuse[]> {
  const [app_id = ''] = hostile.appIds;
  const token = await getToken(sluice, hostile);
  const kept = { identity: 'objected@example.com' };
  await setSuppressed(sluice.baseUrl, token, [kept], true);
  const person = await signedIn(sluice, 'hostile@example.com', 'privacy', hostile.accountId);
  const urls = sluice.api.map(({ baseUrl }) => baseUrl);
  let sent = 0;

  async function post(path: string, body: string | Buffer, headers: Record<string, string> = {}) {
    sent += 1;
    const reply = await fetch(`${urls[sent % urls.length]}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: body as string | Uint8Array<ArrayBuffer>,
      signal: AbortSignal.timeout(requestMsMax),
    });
    await reply.arrayBuffer();
    return reply.status;
  }
  const json = (path: string, body: object) => post(path, JSON.stringify(body));
  const gzip = (path: string, body: Buffer) => post(path, body, { 'content-encoding': 'gzip' });
  const ofAccount = (path: string, body: string) => post(path, body, { authorization: `Bearer ${token}` });
  const each = <T>(count: number, make: (at: number) => T) =>
    Array.from({ length: count }, (_, at) => make(at));
  const pick = <T>(values: readonly T[]) => values[sent % values.length] as T;

  /** Lists of the greatest length: of users who have events, and of users who have none. */
  const lists = each(4, (list) =>
    each(counts.deletionTargetsMax, (at) => ({
      identity: `${list % 2 === 0 ? 'seen' : 'nobody'}-${list}-${at}`,
    })),
  );
  const listed = (more: object) => lists.map((users) => JSON.stringify({ users, ...more }));
  const [deletions, dryRuns, suppressed, freed] = [
    listed({}),
    listed({ dry_run: true }),
    listed({ suppress: true }),
    listed({ suppress: false }),
  ] as const;
  const fat = { properties: { text: 'x'.repeat(900) } };
  const seen = lists[0]?.slice(0, counts.bulkEventsMax) ?? [];
  for (let at = 0; at < 10; at += 1)
    await json(paths.track, { app_id, events: seen.map((user) => ({ event: 'Seen', ...user, ...fat })) });
  const exported = await submitExport(sluice, token, seen.slice(0, 50));
  await untilExportComplete(sluice, token, exported);

  // Small when sent, but inflates to the largest request that is allowed.
  const text = Object.fromEntries(each(4, (at) => [`p${at}`, 'x'.repeat(255)]));
  const users = each(900, (at) => ({ identity: `p-${at}`, properties: text }));
  const properties = gzipSync(JSON.stringify({ app_id, users }));
  const sent_at = new Date().toISOString();
  const joins = () =>
    gzipSync(
      JSON.stringify({
        app_id,
        sent_at,
        messages: each(counts.collectMessagesMax, () => {
          const user_id = newUserId();
          return { type: 'identify', id: `m${user_id}`, user_id, ...kept };
        }),
      }),
      { level: 1 },
    );

  /** Reads the first bytes of an export and no more. */
  const readSlowly = () =>
    new Promise<number>((settle) => {
      const headers = { authorization: `Bearer ${token}` };
      const asked = request(
        `${pick(urls)}${exportPath}/${exported}/data`,
        { headers, agent: false },
        (reply) => {
          reply.pause();
          setTimeout(
            () => {
              asked.destroy();
              settle(reply.statusCode ?? 0);
            },
            reply.statusCode === 200 ? readMs : pauseMs,
          );
        },
      );
      asked.on('error', () => settle(0));
      asked.end();
    });
  const queries: readonly (() => Promise<{ status: number }>)[] = [
    () => person.ask('POST', `/environments/${app_id}/user/events`, { identity: 'seen-0-1' }),
    () => person.ask('POST', `/environments/${app_id}/user/similar`, { identity: 'seen-0' }),
    () => person.ask('GET', `/accounts/${hostile.accountId}/overview`),
    () => person.ask('GET', `/environments/${app_id}/event-names`),
  ];

  return [
    {
      name: 'single events of ever new users',
      lanes: 32,
      send: () => json(paths.track, { app_id, event: 'E', identity: newUserId() }),
    },
    {
      name: 'bulk events of ever new users',
      lanes: 4,
      send: () =>
        json(paths.track, {
          app_id,
          events: each(counts.bulkEventsMax, () => ({ event: 'E', identity: newUserId() })),
        }),
    },
    { name: 'user properties that inflate', lanes: 4, send: () => gzip(paths.userProperties, properties) },
    { name: 'messages that join a suppressed identity', lanes: 4, send: () => gzip('/api/collect', joins()) },
    {
      name: 'identifications as a suppressed identity',
      lanes: 16,
      send: () => json(paths.identify, { app_id, user_id: newUserId(), ...kept }),
    },
    {
      name: 'deletions of 10,000 users',
      lanes: 4,
      send: () => ofAccount(deletionPaths.submit, pick(deletions)),
    },
    {
      name: 'dry runs of 10,000 users',
      lanes: 4,
      send: () => ofAccount(deletionPaths.submit, pick(dryRuns)),
    },
    { name: 'exports read slowly', lanes: 32, send: readSlowly },
    {
      name: 'suppressions of 10,000 users, and their ends',
      lanes: 4,
      send: () => ofAccount(suppressionPath, pick([...suppressed, ...freed])),
    },
    {
      name: 'queries of the console',
      lanes: 32,
      send: async () => (await pick(queries)()).status,
    },
  ];
}

/** Whether no abuse hurt the neighbour more than it may. */
export function abusesWithin({ own, all }: Abuses): boolean {
  return all.every(({ refused, p99 }) => refused.length === 0 && p99 <= timesMax * own.p99);
}

export function describeAbuses({ own, all }: Abuses): string {
  const rows = [own, ...all].map(({ name, statuses, requests, refused, p50, p99 }) => {
    const answers = Object.entries(statuses).map(([status, count]) => `${count} × ${status}`);
    const cells = [requests, refused.length, p50.toFixed(1), p99.toFixed(1), (p99 / own.p99).toFixed(1)];
    return `| ${name} | ${answers.join(', ')} | ${cells.join(' | ')} |`;
  });
  const refusals = all.flatMap(({ name, refused }) => refused.slice(0, 2).map((text) => `${name}: ${text}`));
  return [
    `A neighbour in another account sends ten events a second; its p99 may be ${timesMax} times its p99 alone.`,
    '',
    '| abuse | answers | neighbour’s events | refused | p50 ms | p99 ms | times alone |',
    '| --- | --- | ---: | ---: | ---: | ---: | ---: |',
    ...rows,
    ...refusals,
    '',
  ].join('\n');
}
