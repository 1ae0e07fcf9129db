// Makes a failing input smaller: removes ranges, first halves and then ever shorter ones, where the rest still fails.

/** Settles with the smallest bytes found that still fail; `attemptsMax` limits the calls of `fails`. */
export async function shrink(
  bytes: Buffer,
  fails: (candidate: Buffer) => Promise<boolean>,
  attemptsMax = 2_000,
): Promise<Buffer> {
  let smallest = bytes;
  let attempts = 0;
  for (let size = Math.ceil(bytes.length / 2); size >= 1; ) {
    let shrunk = false;
    for (let at = 0; at < smallest.length && attempts < attemptsMax; ) {
      const candidate = Buffer.concat([smallest.subarray(0, at), smallest.subarray(at + size)]);
      attempts += 1;
      if (candidate.length > 0 && (await fails(candidate))) {
        smallest = candidate;
        shrunk = true;
      } else {
        at += size;
      }
    }
    if (attempts >= attemptsMax || (size === 1 && !shrunk)) return smallest;
    if (!shrunk || size > 1) size = Math.max(1, Math.floor(size / 2));
  }
  return smallest;
}
