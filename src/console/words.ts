// Rewrites the service's messages for the pages. Programs read them too, so they name fields as requests do.

import type { LimitName } from '../contract/limits.js';
import { type OutcomeCode, outcomes } from '../contract/outcomes.js';

/** The limits of an environment, and what each counts. */
export const countedByLimit: Readonly<Record<LimitName, string>> = {
  track: 'Events of one identity, in 30 s',
  user_properties: 'Properties of one identity, in 30 s',
  bulk_identity: 'Records of one identity in bulk requests, in 60 s',
  bulk_app: 'Records in bulk requests, in 60 s',
  collect_user: 'Messages of one user of the client library, in 60 s',
  collect_app: 'Messages of the client library, in 60 s',
  app_records: 'Records by all endpoints, in 60 s',
  app_bytes: 'Bytes of records by all endpoints, in 10 s',
};

const names = new Map<string, string>([
  ['retain_days', 'days that events are kept'],
  ['import_until', 'end of the import'],
  ['write_key', 'write key'],
  ['allow_identities', 'words to allow as identities'],
  ['disallow_identities', 'words to refuse as identities'],
  ['new_password', 'new password'],
  ['app_id', 'app ID'],
  ['account_id', 'account ID'],
  ['user_id', 'user id'],
  ['anonymous_id', 'anonymous id'],
  ...Object.entries(countedByLimit).map(([name, counted]) => [name, `“${counted}”`] as const),
]);

/** Who did something: people have e-mail addresses, a program the id of its key or the fingerprint of ADMIN_TOKEN. */
export function callerText(name: string): string {
  if (name.startsWith('pk_')) return `a program with the key ${name}`;
  return /^[0-9a-f]{8}$/.test(name) ? `a program with ADMIN_TOKEN (${name})` : name;
}

/** A message as a sentence for people. */
export function sentenceOf(message: string): string {
  const named = message.replaceAll(/\b[a-z]+(?:_[a-z]+)+\b/g, (name) => names.get(name) ?? name);
  const text = `${named.slice(0, 1).toUpperCase()}${named.slice(1)}`;
  return /[.!?…:]$/.test(text) ? text : `${text}.`;
}

/** What a code of the API means, in a sentence; the code itself if this console does not know it yet. */
export function meaningOf(code: string): string {
  return Object.hasOwn(outcomes, code) ? outcomes[code as OutcomeCode].meaning : code;
}

/** What is wrong with the books of some minutes. Records missing in one minute are not offset by surplus records in another. */
export function imbalanceOf(differences: readonly number[]): string {
  const sumOf = (sign: 1 | -1) => differences.reduce((sum, each) => sum + Math.max(0, sign * each), 0);
  return [[sumOf(1), 'missing'] as const, [sumOf(-1), 'too many'] as const]
    .filter(([count]) => count > 0)
    .map(([count, what]) => `${count.toLocaleString()} ${count === 1 ? 'record is' : 'records are'} ${what}`)
    .join(' and ');
}
