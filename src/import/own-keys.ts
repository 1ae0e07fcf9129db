// Keys that rows have of their own, of a column or of an export: whether a row has the key of an earlier one. Its service stores the
// first of them only, and does not say which; if they differ, the others are lost, and somebody has to know.

import { createHash } from 'node:crypto';
import { imports } from '../contract/limits.js';
import type { Outgoing } from './mapping.js';

export type SameKeys = {
  /** Rows that say again what an earlier one said. */
  equal: number;
  /** Rows with other content: it is not stored. */
  different: number;
  readonly places: string[];
};

export type OwnKeys = {
  /** Notes the record of a row. */
  note(record: Pick<Outgoing, 'key' | 'isOwnKey' | 'json'>, place: string): void;
};

const shownPlaces = 5;

/** Counts in `found`. */
export function createOwnKeys(found: SameKeys): OwnKeys {
  const contents = new Map<string, string>();
  return {
    note({ key, isOwnKey, json }, place) {
      if (!isOwnKey) return;
      const content = createHash('sha1').update(json).digest('base64').slice(0, 12);
      const earlier = contents.get(key);
      if (earlier === undefined) {
        if (contents.size < imports.comparedKeysMax) contents.set(key, content);
      } else if (earlier === content) found.equal += 1;
      else {
        found.different += 1;
        if (found.places.length < shownPlaces) found.places.push(place);
      }
    },
  };
}
