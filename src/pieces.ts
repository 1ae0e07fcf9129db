// Long lists are worked off in pieces: what one command, script or statement takes, and what others wait for.

/** Divides what there is into lists of at most so many. */
export function* inPieces<Item>(all: Iterable<Item>, countMax: number): Generator<Item[]> {
  let some: Item[] = [];
  for (const each of all) {
    some.push(each);
    if (some.length < countMax) continue;
    yield some;
    some = [];
  }
  if (some.length > 0) yield some;
}
