// The ids and keys in a segment's bytes. Every row begins with its environment and its id: `["1000000001","<32 digits>",…`.
// Nothing is parsed; the id of a record without a key begins with eight zeros (ingest/event-id.ts).

/** The bytes of an id that distinguish keys, as many as a claim in Redis has. */
export const keyBytes = 14;

export type RowKeys = {
  readonly count: number;
  /** The first bytes of each id, one after another. */
  readonly bytes: Buffer;
  /** The number of the row of each key; 0 is the marker's. */
  readonly rows: readonly number[];
};

export function keysOfRows(segment: Buffer): RowKeys {
  const rows: number[] = [];
  let bytes: Buffer = Buffer.allocUnsafe(keyBytes * 256);
  let row = -1;
  for (let from = 0; from < segment.length; ) {
    const to = segment.indexOf(lineFeed, from);
    if (to === -1) throw new Error('a segment ends within a line');
    if (segment[from] !== comma) {
      row++;
      const at = idAt(segment, from);
      if (!isUnkeyed(segment, at)) {
        const keyAt = keyBytes * rows.length;
        if (keyAt === bytes.length) bytes = Buffer.concat([bytes], 2 * bytes.length);
        readDigits(segment, at, bytes, keyAt);
        rows.push(row);
      }
    }
    from = to + 1;
  }
  return {
    count: rows.length,
    bytes: bytes.subarray(0, keyBytes * rows.length),
    rows,
  };
}

/** How many of these rows each environment has; rows without one do not count. Rows are numbered from 0, the marker. */
export function countByEnvironment(segment: Buffer, counted: ReadonlySet<number>): Map<string, number> {
  const counts = new Map<string, number>();
  let row = -1;
  for (let from = 0; from < segment.length; from = segment.indexOf(lineFeed, from) + 1) {
    if (segment[from] === comma || !counted.has(++row)) continue;
    const appId = segment.toString('latin1', from + 2, idAt(segment, from) - 3);
    if (appId !== '') counts.set(appId, (counts.get(appId) ?? 0) + 1);
  }
  return counts;
}

/** Reads the hexadecimal digits of a key. */
function readDigits(segment: Buffer, from: number, key: Buffer, to: number): void {
  for (let i = 0; i < keyBytes; i++) {
    const high = digits[segment[from + 2 * i] as number] as number;
    const low = digits[segment[from + 2 * i + 1] as number] as number;
    key[to + i] = (high << 4) | low;
  }
}

/** The index at which a row's id begins, after its quotation mark. */
function idAt(rows: Buffer, from: number): number {
  // `["` and the digits of the environment; a marker has none. Then `","`.
  let at = from + 2;
  while (at < rows.length && (rows[at] as number) >= zero && (rows[at] as number) <= nine) at++;
  return at + 3;
}

function isUnkeyed(segment: Buffer, at: number): boolean {
  for (let i = at; i < at + 8; i++) if (segment[i] !== zero) return false;
  return true;
}

const comma = 0x2c;
const lineFeed = 0x0a;
const zero = 0x30;
const nine = 0x39;
/** The values of hexadecimal digits. */
const digits = Uint8Array.from({ length: 256 }, (_, code) => Number.parseInt(String.fromCharCode(code), 16));
