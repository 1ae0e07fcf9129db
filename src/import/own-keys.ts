// Finds rows that have the same key, if keys come from a column or an export. The service stores only the first of them, and does not say
// which ones it did not store. If their content differs, that of the others is lost, and somebody has to know.

import { createHash } from 'node:crypto';
import { imports } from '../contract/limits.js';
import type { Outgoing } from './sender.js';

export type SameKeys = {
  /** How many rows repeat an earlier row exactly. */
  equal: number;
  /** How many rows have the key of an earlier row but other content, which is not stored. */
  different: number;
  readonly places: string[];
};

export type OwnKeys = ReturnType<typeof createOwnKeys>;

const shownPlaces = 5;

/** Counts rows with the same key in `found`. */
export function createOwnKeys(found: SameKeys) {
  const contents = new Map<string, string>();
  return {
    /** Notes the record of a row, which has this place in a file. */
    note({ key, isOwnKey, json }: Omit<Outgoing, 'lane'>, file: string, place: number): void {
      if (!isOwnKey) return;
      const content = createHash('sha1').update(json).digest('base64').slice(0, 12);
      const earlier = contents.get(key);
      if (earlier === undefined) {
        if (contents.size < imports.comparedKeysMax) contents.set(key, content);
      } else if (earlier === content) found.equal += 1;
      else {
        found.different += 1;
        if (found.places.length < shownPlaces) found.places.push(`${file}:${place}`);
      }
    },
  };
}
