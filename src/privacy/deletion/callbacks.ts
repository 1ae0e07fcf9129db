// The callbacks of complete deletions: what is sent, and the tries, which the request's document records. The documents decide which
// calls are due; jobs are derived from them and may be lost. After a crash between a call and its record the call is repeated.

import { createHash } from 'node:crypto';
import { readCallback } from '../../accounts/callbacks.js';
import { callbacks } from '../../contract/limits.js';
import { type CrashPoint, noCrash } from '../../crash-point.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { withLease } from '../../redis/lease.js';
import { readOnReplicas } from '../../redis/replicas.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { callbackJobs } from '../../tuning.js';
import { type CallOptions, type CallResult, call, isAccepted } from './callback-call.js';
import type { DeletionRequest } from './request.js';
import { statusOf } from './view.js';

/** Requests whose callbacks are due; a random selection if there are many. */
export async function readDueCallbacks(redis: Redis): Promise<string[]> {
  return redis.srandmember(registryKeys.dueCallbacks, callbackJobs.perTurnMax);
}

/** Makes a call for an account, or settles with `'busy'` if the account already has as many calls running as it may. */
export type WithinShare = (
  accountId: string,
  makeCall: () => Promise<CallResult>,
) => Promise<CallResult | 'busy'>;

/**
 * Calls once. Settles with `ended` if the call succeeded, was given up, or is not due (any more); with `due` if it is to be tried again;
 * with `busy` if the account had too many calls running, so that none was made. Rejects when Redis fails; the call is then still due.
 */
export async function tryCallback(
  redis: Redis,
  requestId: string,
  options: CallOptions,
  crash: CrashPoint = noCrash,
  withinShare: WithinShare = (_, makeCall) => makeCall(),
): Promise<'ended' | 'due' | 'busy'> {
  const read = () => redis.hget(registryKeys.deletions, requestId);
  const text = await readOnReplicas(redis, registryKeys.deletions, read);
  if (text === null) return 'ended';
  const request = JSON.parse(text) as DeletionRequest;
  if (request.callback?.state !== 'pending') return 'ended';
  const { account_id, completed_at = '', callback } = request;
  const nowMs = (options.nowMs ?? Date.now)();
  const target = await readCallback(redis, account_id);
  const result: CallResult | { readonly error: 'callback_removed' } | 'busy' =
    target === undefined
      ? { error: 'callback_removed' }
      : await withinShare(account_id, () => call(target, messageOf(request), options));
  if (result === 'busy') return 'busy';
  crash('call_answered');
  const isOver = target === undefined || nowMs - Date.parse(completed_at) >= callbacks.triedForMs;
  const state = 'answer' in result && isAccepted(result) ? 'delivered' : isOver ? 'failed' : 'pending';
  const tries = [...callback.tries, { at: new Date(nowMs).toISOString(), ...result }];
  const changed: DeletionRequest = {
    ...request,
    callback: { state, tries: tries.slice(-callbacks.triesKept) },
  };
  await runScript(
    redis,
    scripts.noteCallback,
    [registryKeys.deletions, registryKeys.uncopied, registryKeys.dueCallbacks],
    [
      requestId,
      createHash('sha1').update(text).digest('hex'),
      JSON.stringify(changed),
      state === 'pending' ? '' : '1',
    ],
  );
  return state === 'pending' ? 'due' : 'ended';
}

/** The body that is sent: the status without the callback, so that every try sends the same bytes. */
export function messageOf({ callback: _, ...request }: DeletionRequest): string {
  return JSON.stringify({
    type: 'deletion.complete',
    account_id: request.account_id,
    ...statusOf(request),
  });
}

/** Tests the callback of an account; undefined if it has none, `'busy'` while another test of the account is running. */
export async function callForTest(
  redis: Redis,
  accountId: string,
  options: CallOptions,
): Promise<CallResult | 'busy' | undefined> {
  const target = await readCallback(redis, accountId);
  if (target === undefined) return undefined;
  const times = { holdMs: 2 * callbacks.callMsMax, renewEveryMs: callbacks.callMsMax };
  const called = await withLease(redis, registryKeys.callbackTest(accountId), times, () =>
    call(target, JSON.stringify({ type: 'test', account_id: accountId }), options),
  );
  return called === 'locked' ? 'busy' : called;
}
