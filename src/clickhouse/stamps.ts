// Turns a segment's bytes, as the commit script leaves them in Redis, into the rows that ClickHouse inserts. A segment has one block per
// commit: a line of stamps, which begins with a comma, and the rows to which these stamps are appended. Nothing is parsed: a row begins
// with a bracket, and a JSON string contains no line feed.

/**
 * The rows of a segment with their stamps, the marker first. Rows before the first line of stamps are already complete. `take` makes the
 * buffer for them.
 */
export function stampRows(
  segment: Buffer,
  take: (bytesMin: number) => Buffer = Buffer.allocUnsafeSlow,
): Stamped {
  if (segment[segment.length - 1] !== lineFeed) throw new Error('a segment ends within a line');
  let stampsFrom = 0;
  let stampsTo = 0;
  let stamped: Buffer = take(segment.length + (segment.length >> 1));
  let length = 0;
  let rows = 0;
  for (let from = 0; from < segment.length; ) {
    const to = segment.indexOf(lineFeed, from) + 1;
    if (segment[from] === comma) {
      stampsFrom = from;
      stampsTo = to;
    } else {
      const stampBytes = stampsTo - stampsFrom;
      if (length + to - from + stampBytes > stamped.length) stamped = grown(stamped, to - from + stampBytes);
      // The stamps end with the line feed.
      length += segment.copy(stamped, length, from, stampBytes === 0 ? to : to - 1);
      length += segment.copy(stamped, length, stampsFrom, stampsTo);
      if (rows === 0 || segment[from + 2] !== quote) rows++;
    }
    from = to;
  }
  return { bytes: stamped.subarray(0, length), rows, buffer: stamped };
}

export type Stamped = {
  readonly bytes: Buffer;
  /** The number of rows, including the marker, but without key-only rows, which have no environment either. */
  readonly rows: number;
  /** The buffer that holds the bytes. */
  readonly buffer: Buffer;
};

function grown(bytes: Buffer, more: number): Buffer {
  return Buffer.concat([bytes], bytes.length * 2 + more);
}

/** The segment without some of its rows. Rows are counted from 0, which is the marker. */
export function withoutRows(segment: Buffer, taken: ReadonlySet<number>): Buffer {
  const kept = Buffer.allocUnsafe(segment.length);
  let keptBytes = 0;
  let row = 0;
  let from = 0;
  let start = 0;
  for (let end = segment.indexOf(lineFeed) + 1; end > 0; end = segment.indexOf(lineFeed, start) + 1) {
    if (segment[start] !== comma && taken.has(row++)) {
      keptBytes += segment.copy(kept, keptBytes, from, start);
      from = end;
    }
    start = end;
  }
  return kept.subarray(0, keptBytes + segment.copy(kept, keptBytes, from, start));
}

/** Lines with their line feeds. */
export function splitLines(bytes: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  let start = 0;
  for (let end = bytes.indexOf(lineFeed); end !== -1; end = bytes.indexOf(lineFeed, start)) {
    lines.push(bytes.subarray(start, end + 1));
    start = end + 1;
  }
  return lines;
}

const comma = 0x2c;
const quote = 0x22;
const lineFeed = 0x0a;
