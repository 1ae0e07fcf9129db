// Reads the Authorization header. An unreadable header is undefined, like a missing one, since both get the same answer.

import { bearerMax } from '../../contract/limits.js';
import type { Rejection } from '../../contract/outcomes.js';
import { areEqual, hashSecret } from '../../registry/secrets.js';
import type { Exchange } from './exchange.js';
import { ref } from './guard.js';

const bearerForm = new RegExp(`^bearer +([A-Za-z0-9._~+/-]{1,${bearerMax}}=*) *$`, 'i');

/** Name and password of HTTP Basic credentials. Accepts any number of spaces and any case of the scheme. */
export function readBasic(header: string | undefined): { name: string; password: string } | undefined {
  const text = decodeBasic(header);
  const colon = text?.indexOf(':') ?? -1;
  if (text === undefined || colon < 1 || colon === text.length - 1) return undefined;
  return { name: text.slice(0, colon), password: text.slice(colon + 1) };
}

/** The name of HTTP Basic credentials whose password may be empty or absent. */
export function readBasicName(header: string | undefined): string | undefined {
  const name = decodeBasic(header)?.replace(/:.*$/s, '');
  return name === '' ? undefined : name;
}

function decodeBasic(header: string | undefined): string | undefined {
  const encoded = /^basic +([A-Za-z0-9+/]+={0,2}) *$/i.exec(header ?? '')?.[1];
  if (encoded === undefined) return undefined;
  const bytes = Buffer.from(encoded, 'base64');
  const text = bytes.toString('utf8');
  return bytes.equals(Buffer.from(text)) ? text : undefined;
}

/** The token of HTTP Bearer credentials. */
export function readBearer(header: string | undefined): string | undefined {
  return bearerForm.exec(header ?? '')?.[1];
}

/** Whether the request has the administrators' token, compared in constant time. An empty token never matches. */
export function isAdministrator(adminToken: string, sent: string | undefined): boolean {
  return adminToken !== '' && areEqual(hashSecret(sent ?? ''), hashSecret(adminToken));
}

/** Refuses a request, with the message in every field where callers look for it. `challenge`: what the endpoint accepts. */
export function refuseUnauthorized(exchange: Exchange, reason: Rejection, challenge: string): void {
  const { message } = reason;
  exchange.refuse(reason, { error: message, message }, [['WWW-Authenticate', challenge]]);
}

/** For guards that refuse in this way: the header and body of their 401. */
export const asUnauthorized = {
  schemas: { 401: ref('Unauthorized') },
  headers: {
    401: {
      'WWW-Authenticate': {
        required: true,
        description: 'The scheme that the endpoint accepts.',
        schema: { type: 'string' },
      },
    },
  },
};
