// Event ids: 128 bits in 32 hexadecimal digits. With an idempotency key the id is a hash of environment and
// key, so that a repeat has the same id; without one it is unique.

import { hash, randomBytes } from 'node:crypto';

/** The id of every event that carries this key in this environment. */
export function eventIdOfKey(appId: string, idempotencyKey: string): string {
  return hash('sha256', `${appId}\0${idempotencyKey}`, 'hex').slice(0, 32);
}

// A random number a process and a counter: as unique as 128 random bits for a tenth of the time.
const processPart = Buffer.from(randomBytes(10).toString('hex'));
const idBytes = 32;
const written = Buffer.alloc(idBytes);
let counter = 0;

/** An id that no other event has. */
export function uniqueEventId(): string {
  writeUniqueEventId(written, 0);
  return written.toString('latin1');
}

/** Writes such an id; answers where it ends. */
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
