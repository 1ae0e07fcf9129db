// Divides lists: into batches, one for each command, script or statement, so that none of them keeps others waiting long; and into
// groups.

type Sizes<Item> = [countMax: number, weightOf?: (item: Item) => number, weightMax?: number];

/** Divides items into batches of at most `countMax`, none of which weighs more than `weightMax` unless one item does. */
export function* inBatches<Item>(all: Iterable<Item>, ...sizes: Sizes<Item>): Generator<Item[]> {
  const batch = createBatch(sizes);
  for (const item of all) yield* batch.add(item);
  yield* batch.rest();
}

/** Like `inBatches`, for items that arrive over time: each batch is yielded as soon as it is full. */
export async function* inBatchesAsync<Item>(
  all: Iterable<Item> | AsyncIterable<Item>,
  ...sizes: Sizes<Item>
): AsyncGenerator<Item[]> {
  const batch = createBatch(sizes);
  for await (const item of all) yield* batch.add(item);
  yield* batch.rest();
}

function createBatch<Item>([
  countMax,
  weightOf = () => 0,
  weightMax = Number.POSITIVE_INFINITY,
]: Sizes<Item>) {
  let items: Item[] = [];
  let weight = 0;
  function* rest() {
    if (items.length === 0) return;
    const batch = items;
    [items, weight] = [[], 0];
    yield batch;
  }
  return {
    /** Adds an item. Yields the batches that are complete by then. */
    *add(item: Item) {
      const added = weightOf(item);
      if (weight + added > weightMax) yield* rest();
      items.push(item);
      weight += added;
      if (items.length === countMax || weight >= weightMax) yield* rest();
    },
    rest,
  };
}

/** The items by their keys, both in the order in which they come. */
export function grouped<Key, Item>(items: Iterable<Item>, keyOf: (item: Item) => Key): Map<Key, Item[]> {
  const groups = new Map<Key, Item[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}

/** The list, rotated so that it begins with a random item: where work may end early, all get their turn. */
export function rotatedAtRandom<Item>(list: readonly Item[]): Item[] {
  const first = Math.floor(Math.random() * list.length);
  return [...list.slice(first), ...list.slice(0, first)];
}
