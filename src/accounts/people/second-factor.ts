// The second factor: codes that change every 30 s, made by an app from a secret that it was given once (TOTP).
// @see https://www.rfc-editor.org/rfc/rfc6238

import { people } from '../../contract/limits.js';
import { Secret, TOTP } from '../../packages/otpauth.js';
import type { SecondFactor } from '../../registry/documents.js';

const issuer = 'Sluice';

/** A new secret, and the address by which apps take it. */
export function newFactorSecret(email: string): { readonly secret: string; readonly uri: string } {
  const secret = new Secret({ size: 20 });
  return { secret: secret.base32, uri: totpOf(secret, email).toString() };
}

/** Whether a string can be such a secret: 20 bytes in base 32. */
export function isFactorSecret(text: string): boolean {
  return /^[A-Z2-7]{32}$/.test(text);
}

/**
 * The second factor after a right code, which uses up this code and all earlier ones; undefined if the code is wrong or was used before.
 */
export function useCode(factor: SecondFactor, code: string, nowMs: number): SecondFactor | undefined {
  // Apps show a code as 123 456.
  const token = code.replaceAll(/\s/g, '');
  if (!/^\d{6}$/.test(token)) return undefined;
  const delta = totpOf(Secret.fromBase32(factor.secret)).validate({
    token,
    timestamp: nowMs,
    window: people.codesBesideMax,
  });
  if (delta === null) return undefined;
  const number = Math.floor(nowMs / (people.codeSeconds * 1000)) + delta;
  return number > factor.last_code ? { ...factor, last_code: number } : undefined;
}

function totpOf(secret: Secret, label = issuer): TOTP {
  return new TOTP({ issuer, label, secret, digits: 6, period: people.codeSeconds });
}
