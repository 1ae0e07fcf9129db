// The fingerprint of a record: an eight-bit hash of its content without its time. Redis keeps it with the claim of an idempotency key,
// so a repeat whose content differs from the first record's is noticed with a probability of 254 in 255. A repeat with the same content
// never counts as different, whatever its time: callers and libraries take the time anew, or correct it, when they send again.

/**
 * The fingerprint, from 1 to 255, of a row in a buffer, up to the comma before its number in the commit. `timeColumn`: index of the time
 * column, or -1.
 */
export function fingerprintOfRow(rows: DataView, start: number, end: number, timeColumn: number): number {
  // The row's number differs in each commit.
  while (rows.getUint8(end - 1) !== comma) end -= 1;
  if (timeColumn < 0) return reduced(hash(rows, start, end, 0));
  const time = columnAt(rows, start, timeColumn);
  const before = hash(rows, start, time, 0);
  return reduced(
    hash(rows, rows.getUint8(time) === quote ? time + timeBytes : time + nullBytes, end, before),
  );
}

/** Where the value of a column begins. No column before it may be an object. */
function columnAt(rows: DataView, start: number, column: number): number {
  let left = column;
  let at = start;
  while (left > 0) {
    const byte = rows.getUint8(at++);
    if (byte === comma) left -= 1;
    if (byte !== quote) continue;
    // A loop of its own for texts: a third of the time.
    for (let next = rows.getUint8(at++); next !== quote; next = rows.getUint8(at++))
      if (next === backslash) at += 1;
  }
  return at;
}

function hash(rows: DataView, start: number, end: number, from: number): number {
  let fingerprint = from;
  let at = start;
  // Four bytes at a time: 95 ns for a row of 241 bytes, where single bytes take 330.
  for (; at + 4 <= end; at += 4)
    fingerprint = Math.imul(fingerprint ^ rows.getUint32(at), prime) ^ (fingerprint >>> 15);
  for (; at < end; at++) fingerprint = Math.imul(fingerprint ^ rows.getUint8(at), prime);
  return fingerprint;
}

const timeBytes = '"2026-03-01 12:30:00.250"'.length;
const nullBytes = 'null'.length;
const comma = 0x2c;
const quote = 0x22;
const backslash = 0x5c;
const prime = 0x0100_0193;

function reduced(fingerprint: number): number {
  const mixed = Math.imul(fingerprint ^ (fingerprint >>> 15), 0x2c1b_3c6d);
  return 1 + (((mixed ^ (mixed >>> 12)) >>> 0) % 255);
}
