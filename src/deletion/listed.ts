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
export async function listOfAccount(
  redis: Redis,
  accountId: string,
  { state, reference, after }: ListedWhat,
): Promise<ListedPage> {
  const prefix = `${accountId} `;
  // '!' follows the blank.
  const from = after === undefined ? `[${accountId}!` : `(${prefix}${after}`;
  const replies = await redis
    .multi()
    .exists(registryKeys.epoch)
    .zrevrangebylex(registryKeys.listedDeletions, from, `[${prefix}`, 'LIMIT', 0, deletions.listReadMax)
    .exec();
  const [isLoaded, members] = transactionValues(replies);
  if (isLoaded === 0) throw new StateNotLoaded();
  const places = (members as string[]).map((member) => member.slice(prefix.length));
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
  const isEnd = last === places.at(-1) && places.length < deletions.listReadMax;
  return { requests, next: isEnd ? undefined : last };
}
