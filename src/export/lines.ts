// The lines of ClickHouse's answer, passed on as bytes. Only whole lines leave this file, each of them an object: ClickHouse
// reports an error in the middle of an answer as text behind the last line.

/** Some whole lines. */
export type Lines = { readonly bytes: Buffer; readonly count: number };

/** Throws when the answer ends within a line, or holds one that is no object. */
export async function* wholeLines(chunks: AsyncIterable<Buffer>): AsyncGenerator<Lines> {
  let rest: Buffer[] = [];
  for await (const chunk of chunks) {
    const end = chunk.lastIndexOf(lineFeed) + 1;
    if (end === 0) {
      rest.push(chunk);
      continue;
    }
    const bytes =
      rest.length === 0 ? chunk.subarray(0, end) : Buffer.concat([...rest, chunk.subarray(0, end)]);
    rest = end === chunk.length ? [] : [chunk.subarray(end)];
    yield { bytes, count: countObjects(bytes) };
  }
  if (rest.length > 0) throw new Error('clickhouse ended its answer within a line');
}

function countObjects(lines: Buffer): number {
  let count = 0;
  for (let from = 0; from < lines.length; from = lines.indexOf(lineFeed, from) + 1) {
    if (lines[from] !== brace) throw new Error('clickhouse failed in the middle of an answer');
    count += 1;
  }
  return count;
}

const lineFeed = 0x0a;
const brace = 0x7b;
