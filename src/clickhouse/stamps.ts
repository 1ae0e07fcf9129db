// From a segment's bytes, as the commit script leaves them in Redis, to rows as ClickHouse takes them. A segment
// is blocks, one a commit: a line of stamps, which begins with a comma, and rows that lack exactly that as their
// end. Nothing is parsed: a row begins with a bracket, and JSON has no line feed inside a string.

const nextBlock = '\n,';

/** The rows of a segment with their stamps, the marker first. Rows above all stamps are whole and stay as they are. */
export function stampRows(segment: Buffer): Buffer {
  const text = segment.toString('latin1');
  if (!text.endsWith('\n')) throw new Error('a segment ends within a line');
  let rows = '';
  for (let at = 0; at < text.length; ) {
    const stamped = text[at] === ',';
    const rowsAt = stamped ? text.indexOf('\n', at) + 1 : at;
    const next = text.indexOf(nextBlock, stamped ? rowsAt - 1 : at);
    const end = next === -1 ? text.length : next + 1;
    const block = text.slice(rowsAt, end);
    rows += stamped ? block.replaceAll('\n', text.slice(at, rowsAt)) : block;
    at = end;
  }
  return Buffer.from(rows, 'latin1');
}

/** The segment without some of its rows, which are counted from 0, the marker. */
export function withoutRows(segment: Buffer, taken: ReadonlySet<number>): Buffer {
  let row = 0;
  return Buffer.concat(splitLines(segment).filter((line) => line[0] === comma || !taken.has(row++)));
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
const lineFeed = 0x0a;
