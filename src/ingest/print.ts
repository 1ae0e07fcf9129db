// The print of a record: an eight-bit hash of its content. Redis keeps it with the claim of an idempotency key. So a repeat with
// other content than the first record is noticed, with a probability of 254 in 255. A repeat with the same content never counts
// as different, since the same row has the same print.

/** The print of a row in a buffer, from 1 to 255: from its beginning to the comma before its number in the commit. */
export function printOfRow(rows: DataView, start: number, end: number): number {
  // The row's number differs in each commit.
  while (rows.getUint8(end - 1) !== comma) end -= 1;
  let print = 0;
  let at = start;
  // Four bytes at a time: 95 ns for a row of 241 bytes, where single bytes take 330.
  for (; at + 4 <= end; at += 4) print = Math.imul(print ^ rows.getUint32(at), prime) ^ (print >>> 15);
  for (; at < end; at++) print = Math.imul(print ^ rows.getUint8(at), prime);
  return reduced(print);
}

/** The print of a row without its time, which is corrected again each time a message of the client library is sent. */
export function printWithoutTime(row: string, time: string): number {
  // Within a text of the row the quote would be escaped.
  const from = row.indexOf(`,"${time}",`) + 2;
  const to = from + time.length;
  let print = 0;
  for (let at = 0; at < row.length; at++) {
    if (at === from) at = to;
    print = Math.imul(print ^ row.charCodeAt(at), prime) ^ (print >>> 15);
  }
  return reduced(print);
}

const comma = 0x2c;
const prime = 0x0100_0193;

function reduced(print: number): number {
  const mixed = Math.imul(print ^ (print >>> 15), 0x2c1b_3c6d);
  return 1 + (((mixed ^ (mixed >>> 12)) >>> 0) % 255);
}
