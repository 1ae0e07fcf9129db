// Keys of programs that call the administration: each has a role like a person's, in one account or, for operators, in all of them. So
// programs need not have ADMIN_TOKEN, which may do everything and can be changed only by a restart. Only hashes of keys are stored. Every
// function settles when the change is in Redis.

import type { AdministrationAnswers } from '../contract/administration-answers.js';
import { AdministrationError } from '../contract/errors.js';
import type { Role } from '../contract/roles.js';
import type { Redis } from '../redis/client.js';
import type { ProgramKey, ProgramKeys } from '../registry/documents.js';
import {
  accountNamed,
  type Change,
  changeRegistry,
  type RegistrySnapshot,
  readRegistry,
} from '../registry/registry.js';
import { checkNewKey, type KeyForm, newKey } from '../registry/secrets.js';
import { checkBelonging, checkSize } from './accounts.js';

const form: KeyForm = { secret: 'slp_', id: 'pk_' };

type ProgramKeyView = AdministrationAnswers['listProgramKeys'][number];

type Wanted = {
  readonly name: string;
  readonly role: Role;
  /** Needed for every role but `operator`. */
  readonly accountId: string | undefined;
};

/** Creates a key; only this call returns the key itself. */
export async function createProgramKey(
  redis: Redis,
  { name, role, accountId }: Wanted,
): Promise<AdministrationAnswers['createProgramKey']> {
  checkBelonging('program', role, accountId);
  const { key, secret } = newKey(form, name);
  const made: ProgramKey = { ...key, role };
  return changeRegistry(redis, (snapshot) => {
    if (accountId !== undefined) accountNamed(snapshot, accountId);
    const existing = keysOf(snapshot, accountId);
    checkNewKey(name, existing, accountId === undefined ? 'a deployment' : 'an account');
    const changes = [change(accountId, [...existing, made])];
    if (accountId !== undefined) checkSize(snapshot, accountId, changes);
    return { changes, result: { ...viewOf(made, accountId), program_key: secret } };
  });
}

/** The keys of an account, or all; never the keys themselves. */
export async function listProgramKeys(redis: Redis, accountId?: string): Promise<ProgramKeyView[]> {
  const { programKeys } = await readRegistry(redis);
  return [...programKeys.values()]
    .filter(({ account_id }) => accountId === undefined || account_id === accountId)
    .flatMap(({ account_id, keys }) => keys.map((key) => viewOf(key, account_id)));
}

/** Ends a key: API processes refuse it within a second. With an account only a key of that account. */
export async function revokeProgramKey(
  redis: Redis,
  id: string,
  accountId?: string,
): Promise<AdministrationAnswers['revokeProgramKey']> {
  return changeRegistry(redis, ({ programKeys }) => {
    const found = [...programKeys.values()].find(({ keys }) => keys.some((key) => key.id === id));
    if (found === undefined || (accountId !== undefined && found.account_id !== accountId))
      throw new AdministrationError(`there is no program key ${id}`);
    const left = found.keys.filter((key) => key.id !== id);
    return {
      changes: [change(found.account_id, left)],
      result: { id, account_id: found.account_id ?? null, revoked: true },
    };
  });
}

function keysOf({ programKeys }: RegistrySnapshot, accountId = ''): readonly ProgramKey[] {
  return programKeys.get(accountId)?.keys ?? [];
}

function change(accountId: string | undefined, keys: readonly ProgramKey[]): Change {
  const document: ProgramKeys = { ...(accountId !== undefined && { account_id: accountId }), keys };
  return { key: `program_keys:${accountId ?? ''}`, document: keys.length === 0 ? undefined : document };
}

function viewOf({ id, name, role, created_at }: ProgramKey, accountId: string | undefined): ProgramKeyView {
  return { id, name, role, account_id: accountId ?? null, created_at };
}
