// The deletion API as a caller uses it: token, submission, polling of the status; and what the workers say of their rounds.

import { setTimeout as pause } from 'node:timers/promises';
import { basic, deletionPaths } from '../../harness/deletion.js';
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
  /** Settles with the rows that a deletion of these users would find. */
  preview(users: readonly User[]): Promise<number>;
  /** Polls once. */
  isComplete(requestId: string): Promise<boolean>;
  /** Settles when the status is complete; rejects after `secondsMax`. */
  untilComplete(requestId: string, secondsMax: number): Promise<void>;
  show(requestId: string): Promise<DeletionRequest>;
  /** Duration in ms of each step of the rounds since the last call, oldest first. */
  takeRounds(): Promise<Readonly<Record<string, number>>[]>;
};

const pollMs = 40;
/** API processes read the registry twice per second. */
const environmentKnownMsMax = 10_000;

export async function connectDeletionApi({ url, own }: Deployment): Promise<DeletionApi> {
  const { sluice } = own;
  const { account_id: accountId, api_key: apiKey } = sluice.bootstrap;
  const { app_id: otherAppId } = (await sluice.admin('environments', 'add', accountId, 'second')) as {
    app_id: string;
  };
  const ask = async (method: string, path: string, expected: number, body?: object, token?: string) => {
    const authorization = token ?? `Bearer ${accessToken}`;
    const headers = { authorization, 'content-type': 'application/json' };
    const reply = await fetch(`${url}${path}`, {
      method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await reply.text();
    if (reply.status !== expected) throw new BenchError(`${path} was answered ${reply.status}: ${text}`);
    return JSON.parse(text) as Record<string, string>;
  };
  let accessToken = '';
  const credentials = basic(sluice.appId, apiKey ?? '');
  accessToken = (await ask('POST', deletionPaths.token, 200, undefined, credentials)).access_token ?? '';
  await openFirstSegment(url, otherAppId);
  let logRead = 0;
  const isComplete = async (id: string) =>
    (await ask('GET', deletionPaths.status(id), 200)).status === 'complete';
  const show = async (id: string) => (await sluice.admin('deletions', 'show', id)) as DeletionRequest;
  return {
    appIds: [sluice.appId, otherAppId],
    accessToken,
    submit: async (users) =>
      (await ask('POST', deletionPaths.submit, 201, { users })).deletion_request_id ?? '',
    preview: async (users) =>
      Number((await ask('POST', deletionPaths.submit, 200, { users, dry_run: true })).rows),
    isComplete,
    untilComplete: async (id, secondsMax) => {
      const deadline = performance.now() + secondsMax * 1000;
      while (!(await isComplete(id))) {
        if (performance.now() > deadline) {
          throw new BenchError(`not complete within ${secondsMax} s: ${JSON.stringify(await show(id))}`);
        }
        await pause(pollMs);
      }
    },
    show,
    takeRounds: async () => {
      // The log arrives through a pipe.
      await pause(200);
      const text = sluice.workers
        .map((worker) => worker.output())
        .join('')
        .slice(logRead);
      const complete = text.slice(0, text.lastIndexOf('\n') + 1);
      logRead += complete.length;
      return complete
        .split('\n')
        .filter((line) => line.includes('"stepMs"'))
        .map((line) => (JSON.parse(line) as { stepMs: Record<string, number> }).stepMs);
    },
  };
}

/** A fence is the highest segment number so far, and a new deployment has none. */
async function openFirstSegment(url: string, appId: string): Promise<void> {
  const body = JSON.stringify({ app_id: appId, event: 'First', identity: 'nobody@example.com' });
  const headers = { 'content-type': 'application/json' };
  const deadline = performance.now() + environmentKnownMsMax;
  for (;;) {
    const reply = await fetch(`${url}/api/track`, { method: 'POST', headers, body });
    const text = await reply.text();
    if (reply.status === 200) return;
    if (performance.now() > deadline) {
      throw new BenchError(`the first event was answered ${reply.status}: ${text}`);
    }
    await pause(pollMs);
  }
}
