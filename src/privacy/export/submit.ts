// Requesting an export. As for a deletion, the fence is taken, then the request is stored, then it may be answered. Every record that was
// acknowledged before is at or below the fence, and every record that is accepted after the answer is above it.

import { randomUUID } from 'node:crypto';
import { StateNotLoaded } from '../../contract/errors.js';
import { userExports } from '../../contract/limits.js';
import type { Rejection } from '../../contract/outcomes.js';
import { exportSchema } from '../../contract/schemas.js';
import { Compile } from '../../contract/typebox.js';
import type { Document } from '../../parsing/document.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { type Fenced, takeFences } from '../deletion/fences.js';
import { readUsers, type Target, weightOfList } from '../deletion/targets.js';
import type { ExportRequest } from './request.js';

/**
 * Stores a request. Settles with it, or with `too_many` when the account has too many exports or users in them, or with `full` when all
 * accounts together do. Throws StateNotLoaded while Redis does not belong to the deployment.
 */
export async function submitExport(
  fenced: Fenced,
  accountId: string,
  targets: readonly Target[],
): Promise<ExportRequest | 'too_many' | 'full'> {
  const { redis, epoch } = fenced;
  const fences = await takeFences(fenced);
  const request = { user_export_id: randomUUID(), account_id: accountId, targets, fences };
  const text = JSON.stringify(request);
  const stored = await runScript(
    redis,
    scripts.submitExport,
    [
      registryKeys.epoch,
      registryKeys.exports,
      registryKeys.export(request.user_export_id),
      registryKeys.exportWeights,
      registryKeys.exportsByAccount,
      registryKeys.pendingDeletionsByAccount,
    ],
    [
      epoch,
      request.user_export_id,
      text,
      accountId,
      userExports.keptMs,
      userExports.perAccountMax,
      weightOfList(text, targets.length),
      userExports.weightPerAccountMax,
      userExports.weightMax,
    ],
  );
  if (Number(stored) === -2) throw new StateNotLoaded();
  if (Number(stored) === 1) return request;
  return Number(stored) === -4 ? 'full' : 'too_many';
}

const validator = Compile(exportSchema);

/** The distinct users of a request's document, or the reason to refuse it. */
export function readExportTargets(document: Document): readonly Target[] | Rejection {
  const targets = readUsers(validator, document);
  return 'code' in targets ? targets : [...new Set(targets)];
}
