// Lists the requests of an account, from newest to oldest. One sorted set has the requests of all accounts, so that the cost of a page
// depends on what it shows and not on the size of the registry.

import { deletions } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { readLoaded } from '../../registry/registry.js';
import { digestOfReference } from './references.js';
import { type DeletionRequest, readDeletions } from './request.js';

export type ListedWhat = {
  /** A status or a state; undefined for any. */
  readonly state?: string | undefined;
  readonly reference?: string | undefined;
  /** `next` of the previous page: the position where it ended, and the id of a request that the first page showed out of order. */
  readonly after?: string | undefined;
};

export type ListedPage = {
  readonly requests: readonly DeletionRequest[];
  /** For the next page's `after`; undefined after the last one. A page may be partly or wholly empty. */
  readonly next: string | undefined;
};

/** At least this many positions of each account are read in one step. */
const placesOfAccountMin = 10;

const cursorForm = /^\d{14} [0-9a-f-]{36}( [0-9a-f-]{36})?$/;
const placeLength = 14 + 1 + 36;

export function isListCursor(text: string): boolean {
  return cursorForm.test(text);
}

/** A request's member in the sorted set. The script that stores a request builds the same text, by Redis's clock. */
export function listedMember(request: DeletionRequest): string {
  const at = String(Date.parse(request.submitted_at)).padStart(14, '0');
  return `${request.account_id} ${at} ${request.deletion_request_id}`;
}

/**
 * A page of the requests of some accounts together. Costs one Redis command for each account, and the page's documents. Throws StateNotLoaded
 * when Redis was emptied.
 */
export async function listOfAccounts(
  redis: Redis,
  accountIds: readonly string[],
  { state, reference, after }: ListedWhat,
): Promise<ListedPage> {
  const isWanted = (request: DeletionRequest) =>
    (state === undefined || request.status === state || request.state === state) &&
    (reference === undefined || request.reference === reference);
  const requests: DeletionRequest[] = [];
  // The newest request with a reference is found directly and comes first, however many requests are newer. Later pages leave it out, even
  // if another request has the reference by then.
  let ahead = after?.slice(placeLength + 1);
  if (reference !== undefined && after === undefined) {
    const named = await readNamed(redis, accountIds, reference);
    if (named !== undefined && isWanted(named)) {
      requests.push(named);
      ahead = named.deletion_request_id;
    }
  }
  const cursor = (place: string | undefined) => (place && ahead ? `${place} ${ahead}` : place);
  let last = after?.slice(0, placeLength);
  for (let lookedAt = 0; lookedAt < deletions.listLookedAtMax; ) {
    const { places, isAll } = await readPlaces(redis, accountIds, last);
    for (const { place, request } of places) {
      if (requests.length === deletions.listedMax) return { requests, next: cursor(last) };
      last = place;
      if (request !== undefined && request.deletion_request_id !== ahead && isWanted(request))
        requests.push(request);
    }
    if (isAll) return { requests, next: undefined };
    lookedAt += places.length;
  }
  return { requests, next: cursor(last) };
}

/** The next positions of the accounts, each with its request; undefined where Redis lacks the document. */
async function readPlaces(redis: Redis, accountIds: readonly string[], after: string | undefined) {
  const limit = Math.max(
    placesOfAccountMin,
    Math.ceil(deletions.listReadMax / Math.max(1, accountIds.length)),
  );
  const lists = await readLoaded(redis, (transaction) => {
    for (const accountId of accountIds) {
      // '!' sorts directly after the blank, so this is the end of the account's members.
      const from = after === undefined ? `[${accountId}!` : `(${accountId} ${after}`;
      transaction.zrevrangebylex(registryKeys.listedDeletions, from, `[${accountId} `, 'LIMIT', 0, limit);
    }
    return transaction;
  });
  // Times and ids have fixed lengths, so sorting the texts sorts by time.
  const ofAccounts = (lists as string[][]).map((list, at) =>
    list.map((member) => member.slice(`${accountIds[at]} `.length)),
  );
  // An account whose list was cut off may have more requests after its last position here, so positions below it are not complete yet.
  const known = ofAccounts.filter((list) => list.length === limit).map((list) => list.at(-1) ?? '');
  const lowest = known.sort().at(-1) ?? '';
  const places = ofAccounts
    .flat()
    .filter((place) => place >= lowest)
    .sort()
    .reverse();
  const read = places.slice(0, deletions.listReadMax);
  const found = await readDeletions(
    redis,
    read.map((place) => place.slice(15)),
  );
  const byId = new Map(found.map((request) => [request.deletion_request_id, request]));
  return {
    places: read.map((place) => ({ place, request: byId.get(place.slice(15)) })),
    isAll: known.length === 0 && read.length === places.length,
  };
}

/** The newest request of the accounts that has this reference, while the reference is remembered. */
async function readNamed(
  redis: Redis,
  accountIds: readonly string[],
  reference: string,
): Promise<DeletionRequest | undefined> {
  const keys = accountIds.map((accountId) =>
    registryKeys.deletionReference(digestOfReference(accountId, reference)),
  );
  const kept = keys.length === 0 ? [] : await Promise.all(keys.map((key) => redis.get(key)));
  const ids = kept.flatMap((text) => text?.split(' ')[1] ?? []);
  const requests = await readDeletions(redis, ids);
  return requests.sort((a, b) => (a.submitted_at < b.submitted_at ? 1 : -1))[0];
}
