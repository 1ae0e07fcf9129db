// The deletion API as a caller uses it: token, submission, preview, polling of the status.

import { untilKnown } from '../../harness/accounts.js';
import { deletionPaths, getToken, send, showDeletion, untilComplete } from '../../harness/deletion.js';
import { paths } from '../../harness/ingestion.js';
import type { DeletionRequest } from '../../src/deletion/request.js';
import type { Deployment } from '../deployment/deployment.js';
import { BenchError } from '../failure.js';
import type { User } from './population.js';

export type DeletionApi = {
  /** Main Production and another environment of the account. */
  readonly appIds: readonly [string, string];
  readonly accessToken: string;
  /** Submits a deletion; settles with its id when it is accepted. */
  submit(users: readonly User[]): Promise<string>;
  /** Settles with the number of rows that a deletion of these users would find. */
  preview(users: readonly User[]): Promise<number>;
  /** Polls once. */
  isComplete(requestId: string): Promise<boolean>;
  /** Settles when the status is complete; rejects after `secondsMax`. */
  untilComplete(requestId: string, secondsMax: number): Promise<void>;
  show(requestId: string): Promise<DeletionRequest>;
};

export async function connectDeletionApi({ own: { sluice } }: Deployment): Promise<DeletionApi> {
  const { account_id: accountId, api_key: apiKey } = sluice.bootstrap;
  const added = (await sluice.admin('environments', 'add', accountId, 'second')) as { app_id: string };
  const appIds = [sluice.appId, added.app_id] as const;
  const accessToken = await getToken(sluice, { accountId, appIds, apiKey: apiKey ?? '' });
  const headers = { authorization: `Bearer ${accessToken}`, 'content-type': 'application/json' };
  const ask = async (path: string, expected: number, body?: object) => {
    const post = body && { method: 'POST', body: JSON.stringify(body) };
    const reply = await fetch(`${sluice.baseUrl}${path}`, { headers, ...post });
    const text = await reply.text();
    if (reply.status !== expected) throw new BenchError(`${path} was answered ${reply.status}: ${text}`);
    return JSON.parse(text) as Record<string, string>;
  };
  // A fence is the highest segment number so far, and a new deployment has none.
  await untilKnown(sluice, added.app_id);
  await send(sluice, paths.track, { app_id: added.app_id, event: 'First', identity: 'nobody@example.com' });
  return {
    appIds,
    accessToken,
    submit: async (users) => (await ask(deletionPaths.submit, 201, { users })).deletion_request_id ?? '',
    preview: async (users) => Number((await ask(deletionPaths.submit, 200, { users, dry_run: true })).rows),
    isComplete: async (id) => (await ask(deletionPaths.status(id), 200)).status === 'complete',
    untilComplete: (id, secondsMax) => untilComplete(sluice, accessToken, id, secondsMax * 1_000),
    show: (id) => showDeletion(sluice, id),
  };
}
