// Who may use the console: invited by an operator or an account's administrator, with a link by which they choose a
// password. They are documents of the registry, so they exist twice. Every function settles when the change is in Redis.

import { hash, randomBytes } from 'node:crypto';
import { AdministrationError } from '../accounts/accounts.js';
import type { Person, SecondFactor } from '../accounts/documents.js';
import { type Change, changeRegistry, readLoaded, readRegistry, readTime } from '../accounts/registry.js';
import { people as bounds } from '../contract/limits.js';
import { type Role, roles } from '../contract/roles.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import type { Vouched } from './provider.js';

export type PersonView = {
  readonly person_id: string;
  readonly email: string;
  readonly role: Role;
  /** Null for operators. */
  readonly account_id: string | null;
  readonly created_at: string;
  /** `invited`: has not chosen a password yet. */
  readonly state: 'invited' | 'active';
  /** Whether the provider vouches for them, instead of a password. */
  readonly signs_on: boolean;
  readonly second_factor: boolean;
  /** Until when an invitation can be accepted; null if there is none that can. */
  readonly invited_until: string | null;
};

export type Invitation = {
  readonly email: string;
  readonly role: Role;
  /** Needed for every role but `operator`. */
  readonly accountId?: string | undefined;
};

/**
 * Invites a person, or lets one who is there choose a new password. Only this call returns the secret of the link; the
 * former link ends.
 */
export async function invitePerson(
  redis: Redis,
  { email: given, role, accountId }: Invitation,
): Promise<PersonView & { readonly secret: string }> {
  const email = parseEmail(given);
  if ((role === 'operator') !== (accountId === undefined)) {
    throw new AdministrationError(
      role === 'operator'
        ? 'an operator is of no account'
        : `a person with the role ${role} needs an account`,
    );
  }
  const nowMs = await readTime(redis);
  const person_id = personIdOf(email);
  const secret = `${person_id}.${randomBytes(32).toString('base64url')}`;
  return changeRegistry(redis, ({ people, accounts }) => {
    if (accountId !== undefined && !accounts.has(accountId))
      throw new AdministrationError(`there is no account ${accountId}`);
    const there = people.get(person_id);
    const isSame = there?.role === role && there.account_id === accountId;
    if (there !== undefined && !isSame && !hasLapsed(there, nowMs))
      throw new AdministrationError(
        'this address belongs to somebody with another role or account, who has to be removed first',
      );
    if (there?.provider !== undefined)
      throw new AdministrationError('this address signs in by the provider: it needs no invitation');
    const known = isSame ? there : undefined;
    const removals = makeRoom(people, { person_id, accountId }, nowMs);
    const person: Person = {
      ...(known ?? {
        person_id,
        email,
        role,
        ...(accountId === undefined ? {} : { account_id: accountId }),
        created_at: new Date(nowMs).toISOString(),
      }),
      invitation: {
        hash: hashOf(secret),
        ends_at: new Date(nowMs + bounds.invitationMs).toISOString(),
      },
    };
    return { changes: [...removals, changeOf(person)], result: { ...viewPerson(person, nowMs), secret } };
  });
}

/**
 * Makes room for a person of an account, or for an operator: returns the removals of people whose invitations have ended, no
 * more than it takes. Throws AdministrationError if that does not suffice. Who is there already has their place.
 */
function makeRoom(
  people: ReadonlyMap<string, Person>,
  { person_id, accountId }: { readonly person_id: string; readonly accountId: string | undefined },
  nowMs: number,
): Change[] {
  const there = people.get(person_id);
  if (there !== undefined && there.account_id === accountId) return [];
  const stay = new Set([...people.values()].filter((person) => person !== there));
  const removed: Person[] = [];
  const leaveOne = (counts: (person: Person) => boolean, max: number, whose: string) => {
    const counted = [...stay].filter(counts);
    const surplus = Math.max(0, counted.length + 1 - max);
    const leaving = counted
      .filter((person) => hasLapsed(person, nowMs))
      .sort((a, b) => endOf(a) - endOf(b))
      .slice(0, surplus);
    if (leaving.length < surplus)
      throw new AdministrationError(`${whose} can have ${max} people: remove somebody first`);
    for (const person of leaving) stay.delete(person);
    removed.push(...leaving);
  };
  if (accountId !== undefined) {
    leaveOne(({ account_id }) => account_id === accountId, bounds.perAccountMax, 'an account');
    const max = bounds.countMax - bounds.operatorPlaces;
    leaveOne(({ account_id }) => account_id !== undefined, max, 'all accounts together');
  }
  leaveOne(() => true, bounds.countMax, 'a deployment');
  return removed.map(removalOf);
}

/** Whether a person has never got in, and cannot any more: their invitation has ended. */
function hasLapsed(person: Person, nowMs: number): boolean {
  return credentialOf(person) === undefined && !(endOf(person) > nowMs);
}

function endOf({ invitation }: Person): number {
  return Date.parse(invitation?.ends_at ?? '') || 0;
}

/**
 * The person whom the provider vouches for, with the role that it gives now, instead of somebody who was invited by this address
 * and has never accepted. Throws AdministrationError if the address belongs to another: to a person with a password, or to
 * another user of the provider.
 */
export async function enterByProvider(redis: Redis, vouched: Vouched): Promise<Person> {
  const { issuer, subject, role, accountId } = vouched;
  const email = parseEmail(vouched.email);
  const person_id = personIdOf(email);
  const nowMs = await readTime(redis);
  return changeRegistry(redis, ({ people, accounts }) => {
    if (accountId !== undefined && !accounts.has(accountId))
      throw new AdministrationError(`there is no account ${accountId}`);
    const there = people.get(person_id);
    // Anybody can invite an address; the provider says whose it is.
    const known = there === undefined || credentialOf(there) === undefined ? undefined : there;
    if (known !== undefined && (known.provider?.issuer !== issuer || known.provider.subject !== subject))
      throw new AdministrationError('this address belongs to another person');
    const removals = makeRoom(people, { person_id, accountId }, nowMs);
    if (known !== undefined && known.role === role && known.account_id === accountId)
      return { changes: [], result: known };
    const person: Person = {
      person_id,
      email,
      role,
      ...(accountId === undefined ? {} : { account_id: accountId }),
      created_at: known?.created_at ?? new Date(nowMs).toISOString(),
      provider: { issuer, subject, id: randomBytes(8).toString('hex') },
    };
    return { changes: [...removals, changeOf(person)], result: person };
  });
}

/** What a session depends on: the password under which it began, or the role that the provider gave. */
export function credentialOf({ password, provider }: Person): string | undefined {
  return password?.id ?? provider?.id;
}

/** The people of an account, or all of them, by their addresses. */
export async function listPeople(redis: Redis, accountId?: string): Promise<PersonView[]> {
  const [{ people }, nowMs] = await Promise.all([readRegistry(redis), readTime(redis)]);
  return [...people.values()]
    .filter((person) => accountId === undefined || person.account_id === accountId)
    .sort((a, b) => a.email.localeCompare(b.email, 'en'))
    .map((person) => viewPerson(person, nowMs));
}

/** Ends a person's access; their sessions end with the next request. */
export async function removePerson(
  redis: Redis,
  personId: string,
): Promise<{ person_id: string; removed: true }> {
  return changeRegistry(redis, ({ people }) => {
    const person = people.get(personId);
    if (person === undefined) throw new AdministrationError(`there is no person ${personId}`);
    return {
      changes: [removalOf(person)],
      result: { person_id: personId, removed: true as const },
    };
  });
}

/** The person of an address or an id. Throws StateNotLoaded when Redis was emptied. */
export async function findPerson(redis: Redis, name: string): Promise<Person | undefined> {
  const id = name.includes('@') ? personIdOf(name.trim().toLowerCase()) : name;
  const [document] = await readLoaded(redis, (transaction) =>
    transaction.hget(registryKeys.documents, `person:${id}`),
  );
  return typeof document === 'string' ? (JSON.parse(document) as Person) : undefined;
}

/** Whom a link invites; undefined if it was used, has ended, or never was. */
export async function findInvited(redis: Redis, secret: string): Promise<Person | undefined> {
  const [person, nowMs] = await Promise.all([findPerson(redis, idInSecret(secret)), readTime(redis)]);
  return isInvitedBy(person, secret, nowMs) ? person : undefined;
}

/** Gives the invited person a password and uses the link up. A second factor goes: its device may be lost. */
export async function acceptInvitation(
  redis: Redis,
  secret: string,
  passwordHash: string,
): Promise<Person | undefined> {
  const nowMs = await readTime(redis);
  return changeRegistry(redis, ({ people }) => {
    const invited = people.get(idInSecret(secret));
    if (invited === undefined || !isInvitedBy(invited, secret, nowMs))
      return { changes: [], result: undefined };
    const { invitation: _, second_factor: __, ...rest } = invited;
    const person: Person = { ...rest, password: newPassword(passwordHash, nowMs) };
    return { changes: [changeOf(person)], result: person };
  });
}

/** Replaces a person's password, which ends all of their sessions; undefined if the former one was replaced meanwhile. */
export async function changePassword(
  redis: Redis,
  { person_id, password }: Person,
  passwordHash: string,
): Promise<Person | undefined> {
  const nowMs = await readTime(redis);
  return changePerson(redis, person_id, (person) =>
    person.password?.id === password?.id
      ? { ...person, password: newPassword(passwordHash, nowMs) }
      : undefined,
  );
}

/** Sets, replaces or removes a person's second factor. `expected`: the one that the caller read before deciding. */
export async function changeSecondFactor(
  redis: Redis,
  personId: string,
  expected: SecondFactor | undefined,
  next: SecondFactor | undefined,
): Promise<Person | undefined> {
  return changePerson(redis, personId, ({ second_factor, ...person }) => {
    const isExpected =
      second_factor?.secret === expected?.secret && second_factor?.last_code === expected?.last_code;
    if (!isExpected) return undefined;
    return next === undefined ? person : { ...person, second_factor: next };
  });
}

/** Settles with the changed person; undefined if there is none, or `decide` refuses. */
async function changePerson(
  redis: Redis,
  personId: string,
  decide: (person: Person) => Person | undefined,
): Promise<Person | undefined> {
  return changeRegistry(redis, ({ people }) => {
    const known = people.get(personId);
    const person = known === undefined ? undefined : decide(known);
    return { changes: person === undefined ? [] : [changeOf(person)], result: person };
  });
}

/** Reads the name of a role. */
export function parseRole(value: unknown): Role {
  const role = roles.find((name) => name === value);
  if (role === undefined) throw new AdministrationError(`role must be one of ${roles.join(', ')}`);
  return role;
}

export function viewPerson(person: Person, nowMs: number): PersonView {
  const { person_id, email, role, account_id = null, created_at, second_factor, invitation } = person;
  const isInvited = invitation !== undefined && Date.parse(invitation.ends_at) > nowMs;
  return {
    person_id,
    email,
    role,
    account_id,
    created_at,
    state: credentialOf(person) === undefined ? 'invited' : 'active',
    signs_on: person.provider !== undefined,
    second_factor: second_factor !== undefined,
    invited_until: isInvited ? invitation.ends_at : null,
  };
}

function parseEmail(text: string): string {
  const email = text.trim().toLowerCase();
  // What follows a dash would be an option on the command line.
  const isAddress = /^[^\s@\p{Cc}-][^\s@\p{Cc}]*@[^\s@\p{Cc}]+$/u.test(email) && email.isWellFormed();
  if (!isAddress || email.length > bounds.emailMax)
    throw new AdministrationError('an e-mail address such as ada@example.com is needed');
  return email;
}

/** Made from the address, so that an address is one person, who is found without reading the others. */
function personIdOf(email: string): string {
  return `pe_${hashOf(email).slice(0, 16)}`;
}

function idInSecret(secret: string): string {
  return secret.split('.')[0] as string;
}

/** Callers cannot choose the hash of a secret, so the time of the comparison reveals nothing. */
function isInvitedBy(person: Person | undefined, secret: string, nowMs: number): boolean {
  const { hash: hashed, ends_at = '' } = person?.invitation ?? {};
  return hashed === hashOf(secret) && Date.parse(ends_at) > nowMs;
}

function newPassword(hashed: string, nowMs: number): NonNullable<Person['password']> {
  return { id: randomBytes(8).toString('hex'), hash: hashed, set_at: new Date(nowMs).toISOString() };
}

function hashOf(secret: string): string {
  return hash('sha256', secret, 'hex');
}

function changeOf(person: Person): Change {
  return { key: `person:${person.person_id}`, document: person };
}

function removalOf({ person_id }: Person): Change {
  return { key: `person:${person_id}`, document: undefined };
}
