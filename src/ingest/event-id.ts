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
const processPart = Buffer.from(unkeyedDigits + randomBytes(6).toString('hex'));
const idBytes = 32;
const scratch = Buffer.alloc(idBytes);
let counter = 0;

/** An id as ClickHouse shows it. */
export function asUuid(id: string): string {
  return id.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

/** An id that no other event has. */
export function uniqueEventId(): string {
  writeUniqueEventId(scratch, 0);
  return scratch.toString('latin1');
}

/** Writes such an id; returns where it ends. */
export function writeUniqueEventId(into: Uint8Array, at: number): number {
  counter += 1;
  const end = at + idBytes;
  for (let i = 0; i < processPart.length; i++) into[at + i] = processPart[i] as number;
  let rest = counter;
  for (let i = end - 1; i >= at + processPart.length; i--) {
    const digit = rest % 16;
    into[i] = digit < 10 ? 0x30 + digit : 0x57 + digit;
    rest = (rest - digit) / 16;
  }
  return end;
}
