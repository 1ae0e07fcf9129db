// Checks that answers do not reveal who is suppressed. Two equal accounts get the same requests in the same order, but in one of them all
// users that the requests name are suppressed. The status, headers (without dates) and body of each pair of answers must be equal.

import { createTestAccount, untilKnown } from '../harness/accounts.js';
import { getToken } from '../harness/deletion.js';
import { untilStored } from '../harness/ingestion.js';
import { askRaw, type RawReply } from '../harness/raw-http.js';
import type { ApiHandle, SluiceHandle } from '../harness/services.js';
import { setSuppressed } from '../harness/suppression.js';
import { readDocument, readRequest } from './framing.js';
import { randomOf } from './random.js';
import { type RequestContext, validRequests } from './requests.js';
import { takesRecords } from './tally.js';

export type Alike = {
  readonly requests: number;
  /** Answers by status, and how many of them reported a repeat. */
  readonly statuses: Readonly<Record<string, number>>;
  readonly repeats: number;
  /** Each request whose answers differed, with both answers. */
  readonly differences: readonly string[];
  /** How many rows are stored in the account with suppressed users, and in the other. */
  readonly rows: readonly [suppressed: number, others: number];
};

/** So few users that each reaches the limits and repeats keys. */
const usersNamed = 4;

type Named = { identity: string } | { user_id: string } | { anonymous_id: string };

/** Sends `count` requests to both accounts; the seed chooses them among all that carry records. */
export async function compareAnswers(sluice: SluiceHandle, seed: number, count: number): Promise<Alike> {
  const [api] = sluice.api as [ApiHandle];
  const accounts = [
    await createTestAccount(sluice, 'Suppressed', ['Main Production']),
    await createTestAccount(sluice, 'Others', ['Main Production']),
  ] as const;
  const [suppressed, others] = accounts.map(({ appIds: [appId = ''] }) => appId) as [string, string];
  // With the limits of an environment, most answers would be the same refusal.
  const limits = ['bulk_app', 'collect_app', 'app_records', 'app_bytes'].flatMap((name) => [
    '--limit',
    `${name}=none`,
  ]);
  for (const appId of [suppressed, others]) {
    await sluice.admin('environments', 'set', appId, ...limits);
    await untilKnown(sluice, appId);
  }
  const ids = Array.from({ length: usersNamed }, (_, number) => `alike-${seed}-${number}`);
  const [its, their] = [suppressed, others].map((appId) => validRequests(contextOf(appId)));
  const kinds = (its ?? []).flatMap(({ bytes }, at) =>
    takesRecords(readRequest(bytes('any'), 0)?.path ?? '') ? [at] : [],
  );
  const named = kinds.flatMap((kind) => ids.flatMap((id) => namesIn(its?.[kind]?.bytes(id))));
  await setSuppressed(api.baseUrl, await getToken(sluice, accounts[0]), named, true);

  const statuses: Record<string, number> = {};
  const differences: string[] = [];
  let repeats = 0;
  const ask = async (appId: string, bytes: Buffer) => described(await askRaw(api.baseUrl, bytes), appId);
  for (let number = 0; number < count; number += 1) {
    const random = randomOf(seed, number);
    const kind = random.pick(kinds);
    const id = random.pick(ids);
    const [one, other] = [its, their].map((all) => all?.[kind]?.bytes(id) ?? Buffer.alloc(0)) as [
      Buffer,
      Buffer,
    ];
    // The order is random, since a difference could depend on which account is first.
    const isFirst = random.oneIn(2);
    const earlier = isFirst ? await ask(suppressed, one) : undefined;
    const theirs = await ask(others, other);
    const answer = earlier ?? (await ask(suppressed, one));
    const status = answer.slice(0, 3);
    statuses[status] = (statuses[status] ?? 0) + 1;
    if (/sluice-repeats|"repeat"/i.test(answer)) repeats += 1;
    if (answer !== theirs)
      differences.push(
        `${number}, ${its?.[kind]?.name} of ${id}\nsuppressed: ${answer}\nnot suppressed: ${theirs}`,
      );
  }
  await untilStored(sluice);
  const rows = await Promise.all([suppressed, others].map((appId) => countRows(sluice, appId)));
  return { requests: count, statuses, repeats, differences, rows: rows as [number, number] };
}

export function faultsOfAlike({ differences, statuses, repeats, rows }: Alike): string[] {
  const faults = differences.slice(0, 3).map((text) => `answers reveal who is suppressed: ${text}`);
  if (rows[0] > 0) faults.push(`${rows[0]} rows of suppressed users are stored`);
  // Equal answers prove little unless there were rows, limits and repeats among them.
  if (rows[1] === 0 || statuses[429] === undefined || repeats === 0)
    faults.push(`there was no row, no limit or no repeat: ${JSON.stringify({ statuses, repeats, rows })}`);
  return faults;
}

function contextOf(appId: string): RequestContext {
  return { appId, basic: '', bearer: '', deletionRequestId: '', exportId: '' };
}

function namesIn(bytes: Buffer = Buffer.alloc(0)): Named[] {
  const names: Named[] = [];
  const add: Readonly<Record<string, (name: string) => Named>> = {
    identity: (identity) => ({ identity }),
    userId: (identity) => ({ identity }),
    user_id: (user_id) => ({ user_id }),
    anonymousId: (anonymous_id) => ({ anonymous_id }),
  };
  const walk = (value: unknown) => {
    if (typeof value !== 'object' || value === null) return;
    for (const [key, part] of Object.entries(value)) {
      const name = add[key];
      if (name !== undefined && typeof part === 'string') names.push(name(part));
      else walk(part);
    }
  };
  walk(readDocument(readRequest(bytes, 0)?.body));
  return names;
}

/** An answer as text, without what must differ: its date, its environment, and the time until a limit has room. */
function described({ status, head, body }: RawReply, appId: string): string {
  const moment = body.includes('"retry_after"')
    ? /^(date|retry-after|content-length):/i
    : /^(date|retry-after):/i;
  const lines = head.split('\r\n').filter((line) => !moment.test(line));
  return `${status} ${lines.join('; ')} ${body}`
    .replaceAll(appId, 'APP_ID')
    .replace(/;t=\d+/g, ';t=N')
    .replace(/"retry_after":\d+/g, '"retry_after":N');
}

async function countRows(sluice: SluiceHandle, appId: string): Promise<number> {
  const ofTable = (table: string) => `SELECT count() AS rows FROM ${table} WHERE app_id = '${appId}'`;
  const tables = ['events', 'user_properties', 'user_identities'].map(ofTable).join(' UNION ALL ');
  const [row] = await sluice.rows<{ rows: string }>(`SELECT toString(sum(rows)) AS rows FROM (${tables})`);
  return Number(row?.rows);
}
