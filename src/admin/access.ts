// Who may do what: the only place that decides this. Operators, ADMIN_TOKEN and the command line may do everything. People of an account
// may do what their role allows, and only within their account. Anything that belongs to another account looks to them as if it did not
// exist.

import { findPerson, personNamed } from '../accounts/people/people.js';
import { AdministrationError, Fault } from '../contract/errors.js';
import { outcomes } from '../contract/outcomes.js';
import { type AccountRole, type Allowed, mayDo, privacyOfficers } from '../contract/roles.js';
import type { AdminContext } from '../operations/context.js';
import { readDeletion } from '../privacy/deletion/request.js';
import type { Redis } from '../redis/client.js';
import { readRegistry } from '../registry/registry.js';

export type Principal =
  | { readonly role: 'operator' }
  | { readonly role: AccountRole; readonly accountId: string };

export const operator: Principal = { role: 'operator' };

/** The roles for actions that have their own endpoints instead of being commands. */
export const rightsElsewhere = {
  submitDeletion: privacyOfficers,
  readExport: privacyOfficers,
} as const satisfies Readonly<Record<string, Allowed>>;

/** The role does not allow the action at all. */
export class Forbidden extends Fault {
  readonly outcome = 'forbidden';
  override readonly message = outcomes.forbidden.meaning;
}

/** Why a principal may not do in an account what these roles may do; undefined if they may. */
export function refusalOf(
  principal: Principal,
  allowed: Allowed,
  accountId: string,
): 'forbidden' | 'not_theirs' | undefined {
  if (!mayDo(principal.role, allowed)) return 'forbidden';
  return principal.role === 'operator' || principal.accountId === accountId ? undefined : 'not_theirs';
}

/**
 * Whether the person with an email address may do in an account what these roles may do. For actions that take long: the person may have
 * been removed since they began one.
 */
export async function mayPersonDo(
  redis: Redis,
  email: string,
  allowed: Allowed,
  accountId: string,
): Promise<boolean> {
  const person = await findPerson(redis, email);
  if (person === undefined || !mayDo(person.role, allowed)) return false;
  return person.role === 'operator' || person.account_id === accountId;
}

/** Refuses what belongs to another account, with the message that commands give for what does not exist. */
export async function checkOwn(
  { redis }: AdminContext,
  accountId: string,
  params: Readonly<Record<string, unknown>>,
): Promise<void> {
  const { account_id: named, app_id, deletion_request_id: requestId, person_id } = params;
  if (typeof named === 'string' && named !== accountId)
    throw new AdministrationError(`there is no account ${named}`);
  if (typeof requestId === 'string' && (await readDeletion(redis, requestId))?.account_id !== accountId)
    throw new AdministrationError('there is no such deletion request');
  if (typeof app_id !== 'string' && typeof person_id !== 'string') return;
  const snapshot = await readRegistry(redis);
  if (typeof app_id === 'string' && snapshot.environments.get(app_id)?.account_id !== accountId)
    throw new AdministrationError(`there is no environment ${app_id}`);
  if (typeof person_id === 'string' && personNamed(snapshot, person_id)?.account_id !== accountId)
    throw new AdministrationError(`there is no person ${person_id}`);
}
