// Random ids: 53 bits as decimal text for users and sessions, 128 bits as hexadecimal text for messages.

import type { RandomBytes } from './adapters.js';

/** An integer from 0 to 2^53 - 1, all equally likely, as decimal text. */
export function randomUserId(randomBytes: RandomBytes): string {
  const bytes = randomBytes(7);
  let value = (bytes[0] ?? 0) & 0x1f;
  for (let i = 1; i < 7; i++) value = value * 256 + (bytes[i] ?? 0);
  return String(value);
}

export function randomMessageId(randomBytes: RandomBytes): string {
  let id = '';
  for (const byte of randomBytes(16)) id += (byte + 256).toString(16).slice(1);
  return id;
}

/** A fraction from 0 to just below 1. */
export function randomFraction(randomBytes: RandomBytes): number {
  return Number(randomUserId(randomBytes)) / 2 ** 53;
}

export function isUserId(text: unknown): text is string {
  return typeof text === 'string' && /^(0|[1-9]\d{0,15})$/.test(text) && Number(text) <= 2 ** 53 - 1;
}
