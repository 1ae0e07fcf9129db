// Divides long lists into pieces that one command, script or statement takes, so that others do not wait long for it.

/** Divides items into lists of at most `countMax`. A list also ends once its weight has reached `weightMax`. */
export function* inPieces<Item>(
  all: Iterable<Item>,
  countMax: number,
  weightOf: (item: Item) => number = () => 0,
  weightMax = Number.POSITIVE_INFINITY,
): Generator<Item[]> {
  let piece: Item[] = [];
  let weight = 0;
  for (const each of all) {
    piece.push(each);
    weight += weightOf(each);
    if (piece.length < countMax && weight < weightMax) continue;
    yield piece;
    [piece, weight] = [[], 0];
  }
  if (piece.length > 0) yield piece;
}
