// Long lists are worked off in pieces: what one command, script or statement takes, and what others wait for.

/** Divides what there is into lists of at most so many. One ends when it has reached a weight, if there is one. */
export function* inPieces<Item>(
  all: Iterable<Item>,
  countMax: number,
  weightOf: (item: Item) => number = () => 0,
  weightMax = Number.POSITIVE_INFINITY,
): Generator<Item[]> {
  let some: Item[] = [];
  let weight = 0;
  for (const each of all) {
    some.push(each);
    weight += weightOf(each);
    if (some.length < countMax && weight < weightMax) continue;
    yield some;
    [some, weight] = [[], 0];
  }
  if (some.length > 0) yield some;
}
