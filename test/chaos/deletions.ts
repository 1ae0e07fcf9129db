// Callers of the deletion API: they submit users who have records, poll until each request is complete, and write a history with a line
// before and after each submission.

import { closeSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { TestAccount } from '../harness/accounts.js';
import { askForToken, readStatus, submit, type User } from '../harness/deletion.js';
import type { Producer } from '../harness/load.js';
import type { SluiceHandle } from '../harness/services.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import type { Random } from './random.js';

export type Poll = {
  readonly invokedMs: number;
  readonly settledMs: number;
  /** `pending`, `complete`, another answer's HTTP status, or empty without an answer. */
  readonly status: string;
};

export type Submission = {
  readonly users: readonly User[];
  readonly invokedMs: number;
  settledMs: number;
  /** `perhaps`: nobody knows whether the request was stored. */
  outcome: 'accepted' | 'refused' | 'perhaps';
  /** The status of the answer; 0 without one. */
  status: number;
  requestId: string;
  readonly polls: Poll[];
  /** What the administration shows of a request that is not complete at the end. */
  state?: string;
};

export type DeletionClients = {
  readonly submissions: readonly Submission[];
  /** Statuses other than 200 of requests for a token, whose key is always valid. */
  readonly tokenAnswers: readonly number[];
  /** Submits these users once; rejects only if a fault prevents a token. */
  submitUsers(users: readonly User[]): Promise<Submission>;
  /** Ends the submissions; polling goes on. */
  stopSubmitting(): Promise<void>;
  pollAll(): Promise<void>;
  close(): Promise<void>;
};

export type DeletionClientOptions = {
  readonly sluice: SluiceHandle;
  readonly account: TestAccount;
  readonly producer: Producer;
  readonly random: Random;
  /** Pause between two submissions. */
  readonly everyMs: number;
  /** Pause between two polls of all incomplete requests. */
  readonly pollEveryMs: number;
  /**
   * With this many incomplete requests no more are submitted, since a round on a slow machine would never catch up. (Once there were
   * 1,645 requests in 19 minutes, for faults that take two.)
   */
  readonly openMax: number;
};

/** Starts the callers. The first submission comes after the first acknowledgement. */
export function startDeletionClients(options: DeletionClientOptions): DeletionClients {
  const { sluice, account, producer, random, everyMs, pollEveryMs, openMax } = options;
  const dir = tempDir('history');
  const descriptor = openSync(join(dir, 'deletions.jsonl'), 'a');
  const write = (line: object) => writeSync(descriptor, `${JSON.stringify(line)}\n`);
  const submissions: Submission[] = [];
  const tokenAnswers: number[] = [];
  let token: string | undefined;
  let submitting = true;
  let polling = true;

  const target = () => ({ baseUrl: random.pick(sluice.api).baseUrl });

  async function accessToken(): Promise<string> {
    if (token !== undefined) return token;
    const reply = await askForToken(target(), account);
    if (reply.status !== 200) {
      write({ tokenRefused: reply.status });
      tokenAnswers.push(reply.status);
      throw new Error(`no token: ${reply.status}`);
    }
    token = (JSON.parse(reply.text) as { access_token: string }).access_token;
    return token;
  }

  async function submitUsers(users: readonly User[]): Promise<Submission> {
    const bearer = await accessToken();
    const submission: Submission = {
      users,
      invokedMs: performance.now(),
      settledMs: Number.POSITIVE_INFINITY,
      outcome: 'perhaps',
      status: 0,
      requestId: '',
      polls: [],
    };
    submissions.push(submission);
    const number = submissions.length;
    write({ submission: number, users, invokedMs: submission.invokedMs });
    const reply = await submit(target(), bearer, users).catch(() => undefined);
    Object.assign(submission, outcomeOf(reply), { settledMs: performance.now() });
    const { settledMs, outcome, requestId } = submission;
    write({ submission: number, settledMs, outcome, requestId });
    // A Redis that lost everything has lost the tokens too.
    if (reply?.status === 401) token = undefined;
    return submission;
  }

  async function submitSome(): Promise<void> {
    if (open().length >= openMax) return;
    const users = usersToDelete(producer, random);
    if (users.length === 0) return;
    await submitUsers(users);
  }

  async function poll(submission: Submission): Promise<void> {
    const bearer = await accessToken();
    const invokedMs = performance.now();
    const reply = await readStatus(target(), bearer, submission.requestId).catch(() => undefined);
    if (reply?.status === 401) token = undefined;
    const status =
      reply === undefined ? '' : reply.status === 200 ? statusIn(reply.text) : String(reply.status);
    const settled = { invokedMs, settledMs: performance.now(), status };
    submission.polls.push(settled);
    write({ requestId: submission.requestId, ...settled });
  }

  const accepted = () => submissions.filter(({ outcome }) => outcome === 'accepted');
  const open = () => accepted().filter(({ polls }) => polls.at(-1)?.status !== 'complete');

  const submitter = again(() => submitting, everyMs, submitSome);
  const poller = again(
    () => polling,
    pollEveryMs,
    async () => {
      // Complete requests are polled now and then: they must stay complete.
      const [old] = accepted().length === 0 ? [] : [random.pick(accepted())];
      for (const submission of old === undefined ? open() : [...open(), old]) await poll(submission);
    },
  );

  return {
    submissions,
    tokenAnswers,
    submitUsers,
    stopSubmitting: async () => {
      submitting = false;
      await submitter;
    },
    pollAll: async () => {
      for (const submission of accepted()) await poll(submission);
    },
    close: async () => {
      [submitting, polling] = [false, false];
      await Promise.all([submitter, poller]);
      closeSync(descriptor);
      removeTempDir(dir);
    },
  };
}

const pauseStepMs = 100;

/** Repeats `work` while it is wanted, even if it fails because of a fault. */
export async function again(
  wanted: () => boolean,
  everyMs: number,
  work: () => Promise<void>,
): Promise<void> {
  while (wanted()) {
    await work().catch(() => undefined);
    // Pauses in short steps, since `wanted` may change long before the pause is over.
    for (const endMs = performance.now() + everyMs; wanted() && performance.now() < endMs; ) {
      await new Promise((settle) => setTimeout(settle, Math.min(everyMs, pauseStepMs)));
    }
  }
}

function outcomeOf(
  reply: { status: number; text: string } | undefined,
): Pick<Submission, 'outcome' | 'status' | 'requestId'> {
  const { status = 0, text = '{}' } = reply ?? {};
  if (status === 201) {
    const { deletion_request_id: requestId } = JSON.parse(text) as { deletion_request_id: string };
    return { outcome: 'accepted', status, requestId };
  }
  const refused = (status >= 400 && status < 500) || text.includes('"overloaded"');
  return { outcome: refused ? 'refused' : 'perhaps', status, requestId: '' };
}

function statusIn(text: string): string {
  return (JSON.parse(text) as { status: string }).status;
}

/** One to four users who have records, half of them very recent; now and then the busiest user. */
function usersToDelete(producer: Producer, random: Random): User[] {
  const { settled, mark } = producer;
  if (settled.length < 20) return [];
  const users = Array.from({ length: random.int(1, 4) }, () => {
    if (random.int(0, 9) === 0) return { identity: `${mark}-hot@example.com` };
    const from = random.int(0, 1) === 0 ? settled : settled.slice(-10);
    const { identity, user_id } = random.pick(random.pick(from).events);
    return user_id === undefined ? { identity: identity ?? '' } : { user_id: Number(user_id) };
  });
  return users.filter((user) => !('identity' in user) || (user.identity !== '' && user.identity !== 'both'));
}
