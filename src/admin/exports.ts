// Exports that people request in the console; the same as those requested with a token of the deletion API.

import { AdministrationError } from '../contract/errors.js';
import { userExports } from '../contract/limits.js';
import type { AdminContext } from '../operations/context.js';
import type { Target } from '../privacy/deletion/targets.js';
import { isComplete, listExports, readExport } from '../privacy/export/request.js';
import { readExportTargets, submitExport } from '../privacy/export/submit.js';
import { accountNamed, readLoadedRegistry } from '../registry/registry.js';

/** The users that a request lists. Throws AdministrationError if they are more than an export takes, or not valid. */
export function targetsOfUsers(users: unknown): readonly Target[] {
  const targets = readExportTargets({
    value: { users },
    surrogates: true,
    longNumerals: new Set(),
    isLarge: false,
  });
  if ('code' in targets) throw new AdministrationError(targets.message);
  return targets;
}

/** Requests an export of users of an account. */
export async function requestExport(context: AdminContext, accountId: string, users: unknown) {
  const targets = targetsOfUsers(users);
  const { redis } = context;
  const request = await submitExport(
    { redis, ...(await deploymentOf(context, accountId)) },
    accountId,
    targets,
  );
  if (request === 'full')
    throw new AdministrationError(
      'the exports of all accounts already name the maximum number of users: try again later',
    );
  if (request === 'too_many')
    throw new AdministrationError('the account has too many exports: each ends a day after it was requested');
  return { user_export_id: request.user_export_id, account_id: accountId, status: 'pending' };
}

/** The latest exports of an account: how many users each names, when it ends, and whether it can be downloaded. */
export async function listExportsOf(context: AdminContext, accountId: string) {
  const { redis } = context;
  const { epoch } = await deploymentOf(context, accountId);
  const listed = await listExports(redis, accountId, userExports.listedMax);
  const found = await Promise.all(
    listed.map(async ({ id, submittedAt, endsAt }) => {
      const request = await readExport(redis, id);
      if (request === undefined) return [];
      return [
        {
          user_export_id: id,
          submitted_at: submittedAt,
          ends_at: endsAt,
          users: request.targets.length,
          status: (await isComplete(redis, epoch, request)) ? 'complete' : 'pending',
        },
      ];
    }),
  );
  return found.flat();
}

/** The deployment. Throws AdministrationError if it does not have the account. */
export async function deploymentOf({ redis }: AdminContext, accountId: string) {
  const snapshot = await readLoadedRegistry(redis);
  accountNamed(snapshot, accountId);
  return snapshot.deployment;
}
