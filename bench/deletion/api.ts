// The deletion API as a caller uses it: token, submission, preview, polling of the status.

import { unlimited, untilKnown } from '../../test/harness/accounts.js';
import { deletionPaths, getToken, send, showDeletion, untilComplete } from '../../test/harness/deletion.js';
import { paths } from '../../test/harness/ingestion.js';
import type { Deployment } from '../deployment/deployment.js';
import { BenchError } from '../failure.js';
import type { User } from './population.js';

export type DeletionApi = Awaited<ReturnType<typeof connectDeletionApi>>;

export async function connectDeletionApi({ sluice }: Deployment) {
  const { account_id: accountId, api_key: apiKey } = sluice.bootstrap;
  const second = await addEnvironment(sluice, 'second');
  /** The app_ids of Main Production and another environment of the account. */
  const appIds = [sluice.appId, second] as const;
  const accessToken = await getToken(sluice, { accountId, appIds, apiKey: apiKey ?? '' });
  const headers = { authorization: `Bearer ${accessToken}`, 'content-type': 'application/json' };
  const ask = async (path: string, expected: number, body?: object) => {
    const request = body && { method: 'POST', body: JSON.stringify(body) };
    const reply = await fetch(`${sluice.baseUrl}${path}`, { headers, ...request });
    const text = await reply.text();
    if (reply.status !== expected) throw new BenchError(`${path} was answered ${reply.status}: ${text}`);
    return JSON.parse(text) as Record<string, string>;
  };
  // A fence is the highest segment number so far; a new deployment has none yet.
  await send(sluice, paths.track, { app_id: second, event: 'First', identity: 'nobody@example.com' });
  return {
    appIds,
    accessToken,
    /** Submits a deletion; settles with its id when it is accepted. */
    submit: async (users: readonly User[]) =>
      (await ask(deletionPaths.submit, 201, { users })).deletion_request_id ?? '',
    /** Settles with the number of rows that a deletion of these users would find. */
    preview: async (users: readonly User[]) =>
      Number((await ask(deletionPaths.submit, 200, { users, dry_run: true })).rows),
    isComplete: async (id: string) => (await ask(deletionPaths.status(id), 200)).status === 'complete',
    /** Whether queries no longer show the users. */
    isHidden: async (id: string) => (await ask(deletionPaths.status(id), 200)).hidden_at !== undefined,
    /** Settles when the status is complete; rejects after `secondsMax`. */
    untilComplete: (id: string, secondsMax: number) =>
      untilComplete(sluice, accessToken, id, secondsMax * 1_000),
    show: (id: string) => showDeletion(sluice, id),
  };
}

/** Adds an environment without limits to the account whose users are deleted. Settles with its app_id when the API knows it. */
export async function addEnvironment(sluice: Deployment['sluice'], name: string): Promise<string> {
  const added = await sluice.admin('environments', 'add', sluice.bootstrap.account_id, name);
  const { app_id: appId } = added as { app_id: string };
  await sluice.admin('environments', 'set', appId, ...unlimited);
  await untilKnown(sluice, appId);
  return appId;
}
