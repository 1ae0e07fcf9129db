// Event ids: 128 bits in 32 hexadecimal digits. With an idempotency key the id is a hash of environment and
// key, so that a repeat has the same id; without one it is unique. The first 32 bits tell the two apart: they are zero only
// in ids without a key, which need not be remembered (clickhouse/key-index.ts).

import { hash, randomBytes } from 'node:crypto';

/** The first digits of every id without a key. */
const unkeyedDigits = '00000000';

/** The id of a record that cannot be repeated and needs no id of its own. */
export const noEventId = unkeyedDigits.padEnd(32, '0');

/**
 * Keys of one environment are one keyspace, unless it requires write keys: then messages of the client library, which
 * anybody may send, have a keyspace of their own. Otherwise a stranger could take the key of a server's event.
 */
export type Keyspace = 'shared' | 'messages';

/** The id of every record with this key in this environment. */
export function eventIdOfKey(appId: string, idempotencyKey: string, keyspace: Keyspace): string {
  // An app_id begins with a digit, so no key of a server has the same text as one of a message.
  const space = keyspace === 'shared' ? appId : `messages\0${appId}`;
  const id = hash('sha256', `${space}\0${idempotencyKey}`, 'hex').slice(0, 32);
  return id.startsWith(unkeyedDigits) ? `1${id.slice(1)}` : id;
}

// A unique id is a random number of the process and a counter, which takes a tenth of the time of random bits. The process's number has 48
// bits: in one of six million deployments, two of ten thousand starts share a number.
const idBytes = 32;
const lastId = Buffer.from(`${unkeyedDigits}${randomBytes(6).toString('hex')}`.padEnd(idBytes, '0'));
const [zero, nine, a, f] = Buffer.from('09af') as unknown as readonly [number, number, number, number];

/** An id as ClickHouse shows it. */
export function asUuid(id: string): string {
  return id.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

export function uniqueEventId(): string {
  increment(idBytes - 1);
  return lastId.toString('latin1');
}

/** Writes such an id; returns where it ends. */
export function writeUniqueEventId(into: Uint8Array, at: number): number {
  increment(idBytes - 1);
  for (let i = 0; i < idBytes; i++) into[at + i] = lastId[i] as number;
  return at + idBytes;
}

/** Counts on in the digits up to this one. */
function increment(at: number): void {
  const digit = lastId[at] as number;
  if (digit === f) increment(at - 1);
  if (digit === f) lastId[at] = zero;
  else lastId[at] = digit === nine ? a : digit + 1;
}
