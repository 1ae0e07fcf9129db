// Reading the Authorization header. What cannot be read is undefined, like what is not there: the answer is
// the same for every cause.

import { createHash, timingSafeEqual } from 'node:crypto';

/** Name and password of HTTP Basic credentials. Any number of spaces, any case of the scheme. */
export function readBasic(header: string | undefined): { name: string; password: string } | undefined {
  const encoded = /^basic +([A-Za-z0-9+/]+={0,2}) *$/i.exec(header ?? '')?.[1];
  if (encoded === undefined) return undefined;
  const bytes = Buffer.from(encoded, 'base64');
  const text = bytes.toString('utf8');
  if (!bytes.equals(Buffer.from(text))) return undefined;
  const colon = text.indexOf(':');
  if (colon < 1 || colon === text.length - 1) return undefined;
  return { name: text.slice(0, colon), password: text.slice(colon + 1) };
}

/** The token of HTTP Bearer credentials. */
export function readBearer(header: string | undefined): string | undefined {
  return /^bearer +([A-Za-z0-9._~+/-]{1,200}=*) *$/i.exec(header ?? '')?.[1];
}

/** Whether somebody sent the administrators' token, compared in constant time. Nobody does while it is empty. */
export function isAdministrator(adminToken: string, sent: string | undefined): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return adminToken !== '' && timingSafeEqual(digest(sent ?? ''), digest(adminToken));
}
