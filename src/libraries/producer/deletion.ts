// Deletes any number of users in requests of at most 10,000 each, and watches each request until it is complete. The caller learns what was
// submitted before anything else happens, so a killed process can continue where it was.

import { isStuck } from '../../contract/deletion-states.js';
import { counts } from '../../contract/lengths.js';
import { chunksOf, createCalls, createTokens, pause } from './calls.js';
import { producerLimits as limits } from './limits.js';
import type { Settings } from './options.js';
import { parseObject } from './records.js';
import { type DeletionProgress, SluiceError } from './refusal.js';
import type { Transport } from './transport.js';

export type UserToDelete =
  | { readonly identity: string; readonly userId?: undefined }
  | { readonly userId: string | number; readonly identity?: undefined };

export type DeleteOptions = {
  /**
   * How far an earlier call got: its requests are watched, and the first `submittedUsers` users are skipped. Pass the same users in the
   * same order, or none if all were submitted.
   */
  readonly resume?: Pick<DeletionProgress, 'requests' | 'submittedUsers'> | undefined;
  /** Stops watching; the requests themselves continue. */
  readonly signal?: AbortSignal | undefined;
};

export type Deletion = AsyncIterable<DeletionProgress> & {
  /** Iterates to the end. Settles with the last progress; rejects with SluiceError. */
  done(): Promise<DeletionProgress>;
};

const base = '/api/public/v0';

export function deleteUsers(
  settings: Settings,
  transport: Transport,
  users: Iterable<UserToDelete> | AsyncIterable<UserToDelete>,
  options: DeleteOptions = {},
): Deletion {
  if (settings.apiKey === undefined) throw new TypeError('deleteUsers needs the option apiKey');
  const run = () => runDeletion(settings, transport, users, options);
  return {
    [Symbol.asyncIterator]: run,
    async done() {
      let last: DeletionProgress | undefined;
      for await (const progress of run()) last = progress;
      return last as DeletionProgress;
    },
  };
}

type Watched = {
  id: string;
  isComplete: boolean;
  /** Absent if another process submitted them. */
  readonly users: readonly UserToDelete[] | undefined;
};

async function* runDeletion(
  settings: Settings,
  transport: Transport,
  users: Iterable<UserToDelete> | AsyncIterable<UserToDelete>,
  { resume, signal }: DeleteOptions,
): AsyncGenerator<DeletionProgress, void, undefined> {
  const watched: Watched[] = (resume?.requests ?? []).map(({ id, isComplete }) => ({
    id,
    isComplete,
    users: undefined,
  }));
  let submittedUsers = resume?.submittedUsers ?? 0;
  let isSubmitted = false;

  const progress = (): DeletionProgress => ({
    requests: watched.map(({ id, isComplete }) => ({ id, isComplete })),
    submittedUsers,
    isComplete: isSubmitted && watched.every(({ isComplete }) => isComplete),
  });

  const calls = createCalls(settings, transport, signal, progress);
  const { ask, fail } = calls;

  const withToken = createTokens(settings.appId, settings.apiKey as string);
  const askWithToken = (method: 'GET' | 'POST', path: string, body?: string) =>
    withToken(calls, (authorization) => ask(method, path, authorization, body));

  async function submit(chunk: readonly UserToDelete[]): Promise<string> {
    const body = JSON.stringify({ users: chunk.map(targetOf) });
    const answer = await askWithToken('POST', `${base}/user_deletion`, body);
    const { deletion_request_id: id } = (parseObject(answer.text) ?? {}) as { deletion_request_id?: unknown };
    if (answer.status !== 201 || typeof id !== 'string') throw fail(answer);
    return id;
  }

  /** Settles with whether the request became complete, or was submitted again because its list was lost. */
  async function checkRequest(request: Watched): Promise<boolean> {
    const answer = await askWithToken('GET', `${base}/deletion_status/${request.id}`);
    const { status, state } = (parseObject(answer.text) ?? {}) as { status?: unknown; state?: unknown };
    if (answer.status !== 200) throw fail(answer);
    if (status === 'complete') {
      request.isComplete = true;
      return true;
    }
    if (!isStuck(String(state))) return false;
    if (request.users === undefined) {
      throw new SluiceError(
        `the list of users of the request ${request.id} was lost, so they have to be submitted again`,
        String(state),
        answer.status,
        progress(),
      );
    }
    request.id = await submit(request.users);
    return true;
  }

  for await (const chunk of chunksOf(users, counts.deletionTargetsMax, submittedUsers)) {
    watched.push({ id: await submit(chunk), isComplete: false, users: chunk });
    submittedUsers += chunk.length;
    yield progress();
  }
  isSubmitted = true;
  let waitMs: number = limits.pollMsMin;
  for (;;) {
    const open = watched.filter(({ isComplete }) => !isComplete);
    if (open.length === 0) break;
    // Requests complete nearly in order, so later ones are not asked about before the first.
    let changed = 0;
    for (const request of open) {
      if (!(await checkRequest(request))) break;
      changed++;
      if (changed < open.length) yield progress();
    }
    if (changed === open.length) continue;
    waitMs = changed > 0 ? limits.pollMsMin : Math.min(waitMs * 1.5, limits.pollMsMax);
    await pause(waitMs, signal);
  }
  yield progress();
}

/** A user, as the deletion API names users. */
function targetOf({ identity, userId }: UserToDelete): object {
  return identity === undefined ? { user_id: userId } : { identity };
}
