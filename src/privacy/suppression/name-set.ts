// A compact set of hashed names in the memory of an API process: one array with open addressing and 16 bytes per name, which are three
// words of hash and the scope. A bitmap rules out most names that are not in the set, by three bits per name in one word; unlike the array,
// it fits into the processor's cache. A million names take 25 MB at most, and their bitmap 1 or 2 MB.

import type { SipHash } from './siphash.js';

/** Three words of a keyed hash. */
export type NameHash = readonly [first: number, second: number, third: number];

export type NameSet = {
  readonly size: () => number;
  /** The size of the set's arrays. */
  readonly bytes: () => number;
  /** Whether the name that was hashed last is in the set, under this scope or under 0. */
  has(hashed: SipHash, scope: number): boolean;
  add(hash: NameHash, scope: number): void;
  remove(hash: NameHash, scope: number): void;
};

const words = 4;
const slotsMin = 64;
const loadMax = 0.8;
const growth = 1.25;
const bitsPerSlot = 5;

/** Makes an empty set with room for this many names. A slot whose three words of hash are all 0 is free. */
export function createNameSet(room = 0): NameSet {
  let slots = 0;
  let table = new Int32Array(0);
  let bits = new Int32Array(0);
  let wordShift = 0;
  let size = 0;
  allocate(Math.max(slotsMin, Math.ceil(room / loadMax) + 1));

  function allocate(slotCount: number): void {
    slots = slotCount;
    table = new Int32Array(slots * words);
    const bitCountLog2 = Math.ceil(Math.log2(slots * bitsPerSlot));
    bits = new Int32Array(2 ** (bitCountLog2 - 5));
    wordShift = 32 - (bitCountLog2 - 5);
  }

  function placeOf(first: number): number {
    return Math.floor(((first >>> 0) / 2 ** 32) * slots) * words;
  }

  function next(place: number): number {
    return place + words === table.length ? 0 : place + words;
  }

  function isFree(place: number): boolean {
    return (wordAt(place) | wordAt(place + 1) | wordAt(place + 2)) === 0;
  }

  function wordAt(place: number): number {
    return table[place] as number;
  }

  function has(hashed: SipHash, scope: number): boolean {
    const first = hashed.first();
    const second = hashed.second();
    const mask = maskOf(second);
    if (((bits[first >>> wordShift] as number) & mask) !== mask) return false;
    let third: number | undefined;
    for (let place = placeOf(first); !isFree(place); place = next(place)) {
      if (wordAt(place) !== first || wordAt(place + 1) !== second) continue;
      third ??= hashed.third();
      if (wordAt(place + 2) !== third) continue;
      const found = wordAt(place + 3);
      if (found === 0 || found === scope) return true;
    }
    return false;
  }

  /** The place of a name, or the free place where it would be. */
  function find([first, second, third]: NameHash, scope: number): number {
    let place = placeOf(first);
    while (!isFree(place)) {
      const isSame =
        wordAt(place) === first &&
        wordAt(place + 1) === second &&
        wordAt(place + 2) === third &&
        wordAt(place + 3) === scope;
      if (isSame) return place;
      place = next(place);
    }
    return place;
  }

  function write(place: number, [first, second, third]: NameHash, scope: number): void {
    table[place] = first;
    table[place + 1] = second;
    table[place + 2] = third;
    table[place + 3] = scope;
  }

  function add(hash: NameHash, scope: number): void {
    if (size + 1 > slots * loadMax) grow();
    const place = find(hash, scope);
    if (!isFree(place)) return;
    write(place, hash, scope);
    setBits(hash);
    size += 1;
  }

  function setBits([first, second]: NameHash): void {
    const word = first >>> wordShift;
    bits[word] = (bits[word] as number) | maskOf(second);
  }

  function grow(): void {
    const old = table;
    allocate(Math.ceil(slots * growth));
    for (let place = 0; place < old.length; place += words) {
      const hash: NameHash = [old[place] as number, old[place + 1] as number, old[place + 2] as number];
      if ((hash[0] | hash[1] | hash[2]) === 0) continue;
      const scope = old[place + 3] as number;
      write(find(hash, scope), hash, scope);
      setBits(hash);
    }
  }

  /** Frees the slot of a name, and moves up the names behind it that could otherwise no longer be found. Its bits stay set. */
  function remove(hash: NameHash, scope: number): void {
    let hole = find(hash, scope);
    if (isFree(hole)) return;
    size -= 1;
    for (let place = next(hole); !isFree(place); place = next(place)) {
      const home = placeOf(wordAt(place));
      const isBetween = hole < place ? home > hole && home <= place : home > hole || home <= place;
      if (isBetween) continue;
      table.copyWithin(hole, place, place + words);
      hole = place;
    }
    table.fill(0, hole, hole + words);
  }

  return { size: () => size, bytes: () => table.byteLength + bits.byteLength, has, add, remove };
}

/**
 * The bits of a name in its bitmap word. In a set of a million names, 4 % of other names have all three bits set; with one bit each it
 * would be 12 %.
 */
function maskOf(second: number): number {
  return (1 << second) | (1 << (second >>> 5)) | (1 << (second >>> 10));
}
