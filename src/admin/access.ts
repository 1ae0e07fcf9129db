// Who may do what: the only place that decides it. Operators, ADMIN_TOKEN and the command line may do everything. People of an
// account may do what the table (contract/roles.ts) gives their role, and only to what belongs to their account. For
// them, what belongs to another account looks as if it did not exist.

import { AdministrationError } from '../accounts/accounts.js';
import { readRegistry } from '../accounts/registry.js';
import { type AccountRole, mayDo, type Right } from '../contract/roles.js';
import { readDeletion } from '../deletion/request.js';
import { personNamed } from '../people/people.js';
import type { AdminContext } from './context.js';

export type Principal =
  | { readonly role: 'operator' }
  | { readonly role: AccountRole; readonly accountId: string };

export const operator: Principal = { role: 'operator' };

/** The role does not allow this at all. */
export class Forbidden extends Error {
  constructor() {
    super('your role does not allow this');
  }
}

/** Why a principal may not do something in an account; undefined if they may. */
export function refusalOf(
  principal: Principal,
  right: Right,
  accountId: string,
): 'forbidden' | 'not_theirs' | undefined {
  if (!mayDo(principal.role, right)) return 'forbidden';
  return principal.role === 'operator' || principal.accountId === accountId ? undefined : 'not_theirs';
}

type Commands = Readonly<Record<string, (parameters: never) => Promise<unknown>>>;
type Parameters = Readonly<Record<string, unknown>>;

/** The same commands for a person of an account. They reject with Forbidden what the role may not do. */
export function allowCommands<Given extends Commands>(
  commands: Given,
  context: AdminContext,
  principal: Exclude<Principal, { role: 'operator' }>,
): Given {
  const entries = Object.entries(commands).map(([name, run]) => {
    const allowed = async (parameters: Parameters = {}) => {
      if (!mayDo(principal.role, name)) throw new Forbidden();
      await checkOwn(context, principal.accountId, parameters);
      // A list of all accounts becomes a list of the caller's account.
      return run({ ...parameters, accountId: principal.accountId } as never);
    };
    return [name, allowed] as const;
  });
  return Object.fromEntries(entries) as unknown as Given;
}

/** Refuses what belongs to another account, in the words that the command has for what does not exist. */
async function checkOwn({ redis }: AdminContext, accountId: string, parameters: Parameters): Promise<void> {
  const { accountId: named, appId, requestId, personId } = parameters;
  if (typeof named === 'string' && named !== accountId)
    throw new AdministrationError(`there is no account ${named}`);
  if (typeof requestId === 'string' && (await readDeletion(redis, requestId))?.account_id !== accountId)
    throw new AdministrationError('there is no such deletion request');
  if (typeof appId !== 'string' && typeof personId !== 'string') return;
  const snapshot = await readRegistry(redis);
  if (typeof appId === 'string' && snapshot.environments.get(appId)?.account_id !== accountId)
    throw new AdministrationError(`there is no environment ${appId}`);
  if (typeof personId === 'string' && personNamed(snapshot, personId)?.account_id !== accountId)
    throw new AdministrationError(`there is no person ${personId}`);
}
