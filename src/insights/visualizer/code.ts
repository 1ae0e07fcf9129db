// The codes that devices show and administrators enter: six characters of Crockford's alphabet, 30 bits. They are accepted in every way in
// which people write them.

import { randomInt } from 'node:crypto';

/** Without I, L, O and U, which look like other characters: I, L and O are read as those. */
const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const half = 3;

/** A random code, such as `K7P-3XM`. */
export function makeCode(): string {
  const symbols = Array.from({ length: 2 * half }, () => alphabet[randomInt(alphabet.length)]);
  return `${symbols.slice(0, half).join('')}-${symbols.slice(half).join('')}`;
}

/** The code in a typed text, in any case, with or without spaces and the dash. Undefined if it is not a code. */
export function readCode(text: string): string | undefined {
  const symbols = text
    .slice(0, 50)
    .toUpperCase()
    .replace(/[\s-]/g, '')
    .replace(/O/g, '0')
    .replace(/[IL]/g, '1');
  if (symbols.length !== 2 * half || [...symbols].some((symbol) => !alphabet.includes(symbol))) {
    return undefined;
  }
  return `${symbols.slice(0, half)}-${symbols.slice(half)}`;
}
