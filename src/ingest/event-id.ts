// Event ids: 128 bits in 32 hexadecimal digits. With an idempotency key the id is a hash of environment and
// key, so that a repeat has the same id; without one it is unique.

import { hash, randomBytes } from 'node:crypto';

/** The id of every event that carries this key in this environment. */
export function eventIdOfKey(appId: string, idempotencyKey: string): string {
  return hash('sha256', `${appId}\0${idempotencyKey}`, 'hex').slice(0, 32);
}

// A random number a process and a counter: as unique as 128 random bits for 60 ns instead of 900.
const processPart = randomBytes(10).toString('hex');
const processBytes = Buffer.from(processPart);
let counter = 0;

/** An id that no other event has. */
export function uniqueEventId(): string {
  counter += 1;
  return processPart + counter.toString(16).padStart(12, '0');
}

/** Writes such an id; answers where it ends. */
export function writeUniqueEventId(into: Uint8Array, at: number): number {
  counter += 1;
  for (let i = 0; i < 20; i++) into[at + i] = processBytes[i] as number;
  let rest = counter;
  for (let i = 31; i >= 20; i--) {
    const digit = rest % 16;
    into[at + i] = digit < 10 ? 0x30 + digit : 0x57 + digit;
    rest = (rest - digit) / 16;
  }
  return at + 32;
}
