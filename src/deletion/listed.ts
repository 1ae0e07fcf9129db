// Which requests an account has, the newest first. One sorted set has those of all accounts, so that a page costs what it
// shows and not what the registry holds.

import { StateNotLoaded } from '../accounts/registry.js';
import { deletions } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { transactionValues } from '../redis/transactions.js';
import { digestOfReference } from './references.js';
import { type DeletionRequest, readDeletion, readDeletions } from './request.js';

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
  const isWanted = (request: DeletionRequest) =>
    (state === undefined || request.status === state || request.state === state) &&
    (reference === undefined || request.reference === reference);
  // The newest request with a reference need not be looked for, however many came after it.
  const named = reference === undefined ? undefined : await readNamed(redis, accountId, reference);
  const requests: DeletionRequest[] = [];
  if (named !== undefined && after === undefined && isWanted(named)) requests.push(named);
  let last = after;
  for (let lookedAt = 0; lookedAt < deletions.listLookedAtMax; ) {
    const places = await readPlaces(redis, accountId, last);
    for (const { place, request } of places) {
      if (requests.length === deletions.listedMax) return { requests, next: last };
      last = place;
      const isNamed = request?.deletion_request_id === named?.deletion_request_id;
      if (request !== undefined && !isNamed && isWanted(request)) requests.push(request);
    }
    if (places.length < deletions.listReadMax) return { requests, next: undefined };
    lookedAt += places.length;
  }
  return { requests, next: last };
}

/** The next requests of the account, with their places in the list. Redis may lack a document. */
async function readPlaces(redis: Redis, accountId: string, after: string | undefined) {
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
  return places.map((place) => ({ place, request: byId.get(place.slice(15)) }));
}

/** The newest request of the account with a reference, as long as that is remembered. */
async function readNamed(
  redis: Redis,
  accountId: string,
  reference: string,
): Promise<DeletionRequest | undefined> {
  const kept = await redis.get(registryKeys.deletionReference(digestOfReference(accountId, reference)));
  const id = kept?.split(' ')[1];
  return id === undefined ? undefined : readDeletion(redis, id);
}
