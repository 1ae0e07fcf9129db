// Sessions of the console. Redis has them under the hashes of their secrets until they end. After a loss of Redis everybody signs in again.
// A session is valid only as long as the password with which it began.

import { people } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { findOrConfirmAbsence, onReplicas } from '../../redis/replicas.js';
import { transactionValues } from '../../redis/transactions.js';
import type { Person } from '../../registry/documents.js';
import { readLoaded } from '../../registry/registry.js';
import { hashSecret, newSecret } from '../../registry/secrets.js';
import { credentialOf, findPerson } from './people.js';

export type Session = {
  /** Names the session for its owner; gives no access. */
  readonly id: string;
  readonly person_id: string;
  /** The version of the password, or of what the provider said. */
  readonly password_id: string;
  readonly began_at: string;
  readonly ends_at: string;
  readonly address: string;
  /** How the browser identifies itself (User-Agent). */
  readonly agent: string;
};

export type SignedIn = { readonly session: Session; readonly person: Person };

/** Begins a session; only this call returns its secret. */
export async function beginSession(
  redis: Redis,
  person: Person,
  from: { readonly address: string; readonly agent: string },
): Promise<{ readonly secret: string; readonly session: Session }> {
  const secret = newSecret();
  const hashed = hashSecret(secret);
  const nowMs = Date.now();
  const endsMs = nowMs + people.sessionMs;
  const session: Session = {
    id: hashed.slice(0, 16),
    person_id: person.person_id,
    password_id: credentialOf(person) ?? '',
    began_at: new Date(nowMs).toISOString(),
    ends_at: new Date(endsMs).toISOString(),
    address: from.address,
    agent: from.agent.slice(0, people.agentMax),
  };
  const index = registryKeys.sessionsOf(person.person_id);
  const begun = redis
    .multi()
    .set(registryKeys.session(hashed), JSON.stringify(session), 'PX', people.sessionMs)
    .zremrangebyscore(index, '-inf', nowMs)
    .zadd(index, endsMs, hashed)
    .pexpire(index, people.sessionMs)
    .zrange(index, 0, String(-people.sessionsMax - 1));
  const surplus = transactionValues(await onReplicas(redis, index, () => begun.exec())).at(-1) as string[];
  if (surplus.length > 0) await forget(redis, person.person_id, surplus);
  return { secret, session };
}

/** Whom a secret belongs to; undefined if it gives no access. Throws StateNotLoaded when Redis was emptied, and NotOnReplicas. */
export function findSession(redis: Redis, secret: string): Promise<SignedIn | undefined> {
  return findOrConfirmAbsence(redis, registryKeys.documents, () => findSignedIn(redis, secret));
}

async function findSignedIn(redis: Redis, secret: string): Promise<SignedIn | undefined> {
  const key = registryKeys.session(hashSecret(secret));
  const [text] = await readLoaded(redis, (transaction) => transaction.get(key));
  if (text === null) return undefined;
  const session = JSON.parse(text as string) as Session;
  const person = await findPerson(redis, session.person_id);
  if (person === undefined) return undefined;
  return credentialOf(person) === session.password_id ? { session, person } : undefined;
}

/** The valid sessions of a person, the latest first. */
export async function listSessions(redis: Redis, person: Person): Promise<Session[]> {
  const { person_id } = person;
  const hashes = await redis.zrevrange(registryKeys.sessionsOf(person_id), 0, '-1');
  if (hashes.length === 0) return [];
  const texts = await redis.mget(...hashes.map(registryKeys.session));
  return texts
    .flatMap((text) => (text === null ? [] : [JSON.parse(text) as Session]))
    .filter((session) => session.password_id === credentialOf(person));
}

/** Ends a session of a person by its id; false if there is none. */
export async function endSession(redis: Redis, personId: string, id: string): Promise<boolean> {
  const hashes = await redis.zrange(registryKeys.sessionsOf(personId), 0, '-1');
  const named = hashes.filter((hashed) => hashed.startsWith(id) && id.length === idLength);
  if (named.length > 0) await forget(redis, personId, named);
  return named.length > 0;
}

const idLength = 16;

async function forget(redis: Redis, personId: string, hashes: readonly string[]): Promise<void> {
  const ending = redis
    .multi()
    .del(...hashes.map(registryKeys.session))
    .zrem(registryKeys.sessionsOf(personId), ...hashes)
    .incr(registryKeys.sessionEndings);
  transactionValues(await onReplicas(redis, registryKeys.sessionEndings, () => ending.exec()));
}
