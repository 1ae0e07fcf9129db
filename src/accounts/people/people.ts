// Who may use the console: people invited by an operator or an account's administrator, with a link to choose a password. They are
// documents of the registry, so they have a second copy. Every function settles when the change is in Redis.

import { randomBytes } from 'node:crypto';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { AdministrationError } from '../../contract/errors.js';
import { people as bounds } from '../../contract/limits.js';
import type { Role } from '../../contract/roles.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import type { Account, FormerPeople, Person, SecondFactor } from '../../registry/documents.js';
import {
  accountNamed,
  type Change,
  changeRegistry,
  type RegistrySnapshot,
  readDocument,
  readRegistry,
  readTime,
} from '../../registry/registry.js';
import { hashSecret, newSecret } from '../../registry/secrets.js';
import { checkBelonging } from '../accounts.js';
import type { NotVouched, Subject, Vouched } from './provider.js';

export type PersonView = AdministrationAnswers['listPeople'][number];

export type Invitation = {
  readonly email: string;
  readonly role: Role;
  /** Needed for every role but `operator`. */
  readonly accountId?: string | undefined;
};

/**
 * Invites a person, or lets one who has access choose a new password. Only this call returns the secret of the link; an earlier link ends.
 * Whoever uses the link acts in that person's name, so for people who have access, or had it, only an operator can make one. An
 * administrator's invitation exists beside the access that the address may have to other accounts, so administrators learn nothing of that.
 */
export async function invitePerson(
  redis: Redis,
  { email: given, role, accountId }: Invitation,
  by: 'operator' | 'administrator' = 'operator',
): Promise<PersonView & { readonly secret: string }> {
  const email = parseEmail(given);
  checkBelonging('person', role, accountId);
  const nowMs = await readTime(redis);
  return changeRegistry(redis, (snapshot) => {
    if (accountId !== undefined) accountNamed(snapshot, accountId);
    const known = snapshot.people.get(personIdOf(email));
    const active = known === undefined || credentialOf(known) === undefined ? undefined : known;
    if (by === 'administrator') checkNeverActive(snapshot, email, accountId, active);
    else checkSame(active, role, accountId);
    // An operator's link for somebody who has access leaves that access as it is.
    const kept = by === 'operator' ? active : undefined;
    const former = kept ?? invitedBefore(snapshot, email, accountId);
    const room = makeRoom(snapshot, { replaced: former, accountId }, nowMs);
    const person_id = kept?.person_id ?? invitedIdOf(email, accountId);
    const secret = newSecret(`${person_id}.`);
    const invited = {
      email,
      role,
      ...(accountId === undefined ? {} : { account_id: accountId }),
      created_at: former?.created_at ?? new Date(nowMs).toISOString(),
    };
    const person: Person = {
      ...(kept ?? invited),
      person_id,
      invitation: { hash: hashSecret(secret), ends_at: new Date(nowMs + bounds.invitationMs).toISOString() },
    };
    const replaced = former === undefined || former.person_id === person_id ? [] : [former];
    return {
      changes: [...removalsOf(snapshot, [...room, ...replaced]), changeOf(person)],
      result: { ...viewPerson(person, nowMs), secret },
    };
  });
}

/** Throws AdministrationError if a person has access to the account, or had it. */
function checkNeverActive(
  { formerPeople }: RegistrySnapshot,
  email: string,
  accountId: string | undefined,
  active: Person | undefined,
): void {
  if (active !== undefined && active.account_id === accountId)
    throw new AdministrationError('this person has access: only an operator can make another link for them');
  if (formerPeople.get(accountId ?? '')?.person_ids.includes(personIdOf(email)) === true)
    throw new AdministrationError('this person had access: only an operator can invite them again');
}

/** Throws AdministrationError if the address has access with another role or account, or by the provider. */
function checkSame(active: Person | undefined, role: Role, accountId: string | undefined): void {
  if (active === undefined) return;
  if (active.role !== role || active.account_id !== accountId)
    throw new AdministrationError(
      'this address belongs to somebody with another role or account, who has to be removed first',
    );
  if (active.provider !== undefined)
    throw new AdministrationError('this address signs in by the provider: it needs no invitation');
}

/** The person who was invited to an account under an address, and has not accepted. */
function invitedBefore(
  { people }: RegistrySnapshot,
  email: string,
  accountId: string | undefined,
): Person | undefined {
  return people.get(invitedIdOf(email, accountId));
}

/**
 * Makes room for a person of an account, or for an operator: returns whom to remove, namely people whose invitations have ended, and no
 * more of them than necessary. Throws AdministrationError if that does not suffice. The place of a person who is replaced is free.
 */
function makeRoom(
  { people }: Pick<RegistrySnapshot, 'people'>,
  { replaced, accountId }: { readonly replaced: Person | undefined; readonly accountId: string | undefined },
  nowMs: number,
): Person[] {
  if (replaced !== undefined && replaced.account_id === accountId) return [];
  const stay = new Set([...people.values()].filter((person) => person !== replaced));
  const removed: Person[] = [];
  const leaveRoom = (counts: (person: Person) => boolean, max: number, whose: string) => {
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
    leaveRoom(({ account_id }) => account_id === accountId, bounds.perAccountMax, 'an account');
    const max = bounds.countMax - bounds.operatorPlaces;
    leaveRoom(({ account_id }) => account_id !== undefined, max, 'all accounts together');
  }
  leaveRoom(() => true, bounds.countMax, 'a deployment');
  return removed;
}

/** Whether a person never signed in and no longer can: their invitation has ended. */
function hasLapsed(person: Person, nowMs: number): boolean {
  return credentialOf(person) === undefined && !(endOf(person) > nowMs);
}

function endOf({ invitation }: Person): number {
  return Date.parse(invitation?.ends_at ?? '') || 0;
}

/** Somebody from the provider who is not let in. `account_id`: of the access that they had until now. */
export type NotEntered = {
  readonly refused: NotVouched['refused'] | 'no_account' | 'address_taken' | 'no_place';
  readonly account_id?: string;
};

/**
 * The person whom the provider vouches for, with the role that it gives them now. People are recognised by issuer and subject: access that
 * the same person had before, perhaps under another address, ends if it differs or if they are not let in.
 */
export async function enterByProvider(redis: Redis, who: Vouched | NotVouched): Promise<Person | NotEntered> {
  const nowMs = await readTime(redis);
  return changeRegistry<Person | NotEntered>(redis, (snapshot) => {
    const own = [...snapshot.people.values()].filter(({ provider }) => isSubject(provider, who));
    const others = new Map([...snapshot.people].filter(([, person]) => !own.includes(person)));
    const entered =
      'refused' in who ? who.refused : entryOf({ ...snapshot, people: others }, own, who, nowMs);
    if (typeof entered === 'string') {
      const account_id = own.find((person) => person.account_id !== undefined)?.account_id;
      const result = { refused: entered, ...(account_id === undefined ? {} : { account_id }) };
      return { changes: removalsOf(snapshot, own), result };
    }
    const { person, room } = entered;
    const removed = [...room, ...own.filter(({ person_id }) => person_id !== person.person_id)];
    const isNew = !own.includes(person);
    return {
      changes: [...removalsOf(snapshot, removed), ...(isNew ? [changeOf(person)] : [])],
      result: person,
    };
  });
}

/** Who enters, and whom to remove for that; or why they do not. `own` are not among the people of the snapshot. */
function entryOf(
  snapshot: RegistrySnapshot,
  own: readonly Person[],
  { issuer, subject, role, accountId, email: given }: Vouched,
  nowMs: number,
): { readonly person: Person; readonly room: readonly Person[] } | NotEntered['refused'] {
  let email: string;
  try {
    email = parseEmail(given);
  } catch (error) {
    if (error instanceof AdministrationError) return 'no_email';
    throw error;
  }
  const person_id = personIdOf(email);
  if (accountId !== undefined && !snapshot.accounts.has(accountId)) return 'no_account';
  const holder = snapshot.people.get(person_id);
  // An invitation does not take an address: anybody can invite one, and the provider says whose it is.
  if (holder !== undefined && credentialOf(holder) !== undefined) return 'address_taken';
  const known = own.find((person) => person.person_id === person_id);
  if (known !== undefined && known.role === role && known.account_id === accountId)
    return { person: known, room: [] };
  const invited = invitedBefore(snapshot, email, accountId);
  let room: readonly Person[];
  try {
    room = makeRoom(snapshot, { replaced: known ?? invited, accountId }, nowMs);
  } catch (error) {
    if (error instanceof AdministrationError) return 'no_place';
    throw error;
  }
  const person: Person = {
    person_id,
    email,
    role,
    ...(accountId === undefined ? {} : { account_id: accountId }),
    created_at: known?.created_at ?? new Date(nowMs).toISOString(),
    provider: { issuer, subject, id: randomBytes(8).toString('hex') },
  };
  return { person, room: invited === undefined ? room : [...room, invited] };
}

function isSubject(provider: Person['provider'], { issuer, subject }: Subject): boolean {
  return provider?.issuer === issuer && provider.subject === subject;
}

/** What a session depends on: the password under which it began, or the role that the provider gave. */
export function credentialOf({ password, provider }: Person): string | undefined {
  return password?.id ?? provider?.id;
}

export async function listPeople(redis: Redis, accountId?: string): Promise<PersonView[]> {
  const [{ people }, nowMs] = await Promise.all([readRegistry(redis), readTime(redis)]);
  return [...people.values()]
    .filter((person) => accountId === undefined || person.account_id === accountId)
    .sort((a, b) => a.email.localeCompare(b.email, 'en'))
    .map((person) => viewPerson(person, nowMs));
}

/** The person with an id, perhaps the one that they had while invited. */
export function personNamed({ people }: RegistrySnapshot, id: string): Person | undefined {
  return people.get(id) ?? [...people.values()].find(({ invited_as }) => invited_as === id);
}

/** Ends a person's access: their sessions with the next request, and work that goes on under them within a second. */
export async function removePerson(
  redis: Redis,
  personId: string,
): Promise<{ person_id: string; removed: true }> {
  return changeRegistry(redis, (snapshot) => {
    const person = personNamed(snapshot, personId);
    if (person === undefined) throw new AdministrationError(`there is no person ${personId}`);
    return {
      changes: removalsOf(snapshot, [person]),
      result: { person_id: personId, removed: true as const },
    };
  });
}

/** The person with an address or an id. Throws StateNotLoaded when Redis was emptied. */
export async function findPerson(redis: Redis, name: string): Promise<Person | undefined> {
  const id = name.includes('@') ? personIdOf(name.trim().toLowerCase()) : name;
  return readDocument(redis, `person:${id}`);
}

/** Whether a person's account requires a second factor that they do not have yet. Until then they see nothing. */
export async function needsSecondFactor(redis: Redis, person: Person): Promise<boolean> {
  const { account_id, provider, second_factor } = person;
  if (account_id === undefined || provider !== undefined || second_factor !== undefined) return false;
  const text = await redis.hget(registryKeys.documents, `account:${account_id}`);
  return text !== null && (JSON.parse(text) as Account).second_factor === 'required';
}

/** The person whom a link invites; undefined if the link was used, has expired, or never existed. */
export async function findInvited(redis: Redis, secret: string): Promise<Person | undefined> {
  const [person, nowMs] = await Promise.all([findPerson(redis, idInSecret(secret)), readTime(redis)]);
  return isInvitedBy(person, secret, nowMs) ? person : undefined;
}

/**
 * Gives the invited person a password and uses the link up. A second factor is removed: its device may be lost. Undefined if the link is
 * not valid, or if somebody else has access under the address.
 */
export async function acceptInvitation(
  redis: Redis,
  secret: string,
  passwordHash: string,
): Promise<Person | undefined> {
  const nowMs = await readTime(redis);
  return changeRegistry<Person | undefined>(redis, (snapshot) => {
    const { people } = snapshot;
    const invited = people.get(idInSecret(secret));
    if (invited === undefined || !isInvitedBy(invited, secret, nowMs))
      return { changes: [], result: undefined };
    const person_id = personIdOf(invited.email);
    const holder = people.get(person_id);
    if (holder !== undefined && holder !== invited && credentialOf(holder) !== undefined)
      return { changes: [], result: undefined };
    const { invitation: _, second_factor: __, ...rest } = invited;
    const former = invited.person_id === person_id ? [] : [invited];
    const person: Person = {
      ...rest,
      person_id,
      ...(former.length === 0 ? {} : { invited_as: invited.person_id }),
      password: newPassword(passwordHash, nowMs),
    };
    return { changes: [...removalsOf(snapshot, former), changeOf(person)], result: person };
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
  const email = text.trim();
  // A leading dash would make it an option on the command line. Non-ASCII letters and invisible blanks could look like somebody else's
  // address in the audit log; the Kelvin sign becomes a k in lower case.
  const isAddress = /^(?!-)[!-?A-~]+@[!-?A-~]+$/.test(email);
  if (!isAddress || email.length > bounds.emailMax)
    throw new AdministrationError('the e-mail address must look like ada@example.com, in ASCII characters');
  return email.toLowerCase();
}

/** Made from the address, so that an address has one person with access, who is found without reading the others. */
function personIdOf(email: string): string {
  return `pe_${hashSecret(email).slice(0, 16)}`;
}

/** The id of somebody who was invited and has not accepted yet: another one for each account, and for operators. */
function invitedIdOf(email: string, accountId = ''): string {
  return `pe_${hashSecret(`${email}\0${accountId}`).slice(0, 16)}`;
}

function idInSecret(secret: string): string {
  return secret.split('.')[0] as string;
}

/** Callers cannot choose the hash of a secret, so the time of the comparison reveals nothing. */
function isInvitedBy(person: Person | undefined, secret: string, nowMs: number): boolean {
  const { hash: hashed, ends_at = '' } = person?.invitation ?? {};
  return hashed === hashSecret(secret) && Date.parse(ends_at) > nowMs;
}

function newPassword(hashed: string, nowMs: number): NonNullable<Person['password']> {
  return { id: randomBytes(8).toString('hex'), hash: hashed, set_at: new Date(nowMs).toISOString() };
}

function changeOf(person: Person): Change {
  return { key: `person:${person.person_id}`, document: person };
}

/** Removes people. The account keeps a list of those who had access. */
function removalsOf({ formerPeople }: RegistrySnapshot, removed: readonly Person[]): Change[] {
  const changes: Change[] = removed.map(({ person_id }) => ({
    key: `person:${person_id}`,
    document: undefined,
  }));
  const hadAccess = removed.filter((person) => credentialOf(person) !== undefined);
  for (const account_id of new Set(hadAccess.map((person) => person.account_id))) {
    if (account_id === undefined) continue;
    const now = hadAccess
      .filter((person) => person.account_id === account_id)
      .map(({ person_id }) => person_id);
    const before = formerPeople.get(account_id)?.person_ids ?? [];
    const person_ids = [...before.filter((id) => !now.includes(id)), ...now].slice(-bounds.formerMax);
    const document: FormerPeople = { account_id, person_ids };
    changes.push({ key: `former_people:${account_id}`, document });
  }
  return changes;
}
