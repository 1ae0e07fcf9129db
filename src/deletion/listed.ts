// Which requests an account has, the newest first. One sorted set has those of all accounts, so that a page costs what it
// shows and not what the registry holds.

import { StateNotLoaded } from '../accounts/registry.js';
import { deletions } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { transactionValues } from '../redis/transactions.js';
import { type DeletionRequest, readDeletions } from './request.js';

export type ListedWhat = {
  /** A status or a state; undefined for any. */
  readonly state: string | undefined;
  readonly reference: string | undefined;
  /** Where the page before ended. */
  readonly after: string | undefined;
};

export type ListedPage = {
  readonly requests: readonly DeletionRequest[];
  /** Where the next page begins; undefined after the last one. A page may be partly or wholly empty. */
  readonly next: string | undefined;
};

const cursorForm = /^\d{14} [0-9a-f-]{36}$/;

/** Whether a text can be a cursor. */
export function isListCursor(text: string): boolean {
  return cursorForm.test(text);
}

/** The member of a request in the sorted set. The script that stores a request makes it by Redis's clock. */
export function listedMember(request: DeletionRequest): string {
  const at = String(Date.parse(request.submitted_at)).padStart(14, '0');
  return `${request.account_id} ${at} ${request.deletion_request_id}`;
}

/** A page of the account's requests. Throws StateNotLoaded when Redis was emptied. */
export function listOfAccount(redis: Redis, accountId: string, what: ListedWhat): Promise<ListedPage> {
  return listOfAccounts(redis, [accountId], what);
}

/** The same of several accounts together: one command each, and a page's documents. */
export async function listOfAccounts(
  redis: Redis,
  accountIds: readonly string[],
  { state, reference, after }: ListedWhat,
): Promise<ListedPage> {
  const reads = redis.multi().exists(registryKeys.epoch);
  for (const accountId of accountIds) {
    // '!' follows the blank.
    const from = after === undefined ? `[${accountId}!` : `(${accountId} ${after}`;
    const count = deletions.listReadMax + 1;
    reads.zrevrangebylex(registryKeys.listedDeletions, from, `[${accountId} `, 'LIMIT', 0, count);
  }
  const [isLoaded, ...lists] = transactionValues(await reads.exec());
  if (isLoaded === 0) throw new StateNotLoaded();
  const members = (lists as string[][]).flatMap((list, at) =>
    list.map((member) => member.slice(`${accountIds[at]} `.length)),
  );
  // Times and ids have one length each, so that texts sort like them.
  const all = members.sort().reverse();
  const places = all.slice(0, deletions.listReadMax);
  const found = await readDeletions(
    redis,
    places.map((place) => place.slice(15)),
  );
  const byId = new Map(found.map((request) => [request.deletion_request_id, request]));
  const requests: DeletionRequest[] = [];
  let last: string | undefined;
  for (const place of places) {
    if (requests.length === deletions.listedMax) break;
    last = place;
    const request = byId.get(place.slice(15));
    if (request === undefined) continue;
    const isWanted =
      (state === undefined || request.status === state || request.state === state) &&
      (reference === undefined || request.reference === reference);
    if (isWanted) requests.push(request);
  }
  return { requests, next: last === all.at(-1) ? undefined : last };
}
