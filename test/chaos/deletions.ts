// Callers of the deletion API: they submit users that were sent about, poll until each request is complete, and
// keep a history of all of it, a line before and a line after.

import { closeSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { askForToken, readStatus, submit, type TestAccount, type User } from '../support/deletion.js';
import type { Producer } from '../support/load.js';
import type { SluiceHandle } from '../support/services.js';
import { removeTempDir, tempDir } from '../support/temp-dir.js';
import type { Random } from './random.js';

export type Poll = {
  readonly invokedMs: number;
  readonly settledMs: number;
  /** `pending`, `complete`, an HTTP status of another answer, or `` without one. */
  readonly status: string;
};

export type Submission = {
  readonly users: readonly User[];
  readonly invokedMs: number;
  settledMs: number;
  /** `perhaps`: nobody knows whether it was stored. */
  outcome: 'accepted' | 'refused' | 'perhaps';
  /** Of the answer, 0 without one. */
  status: number;
  requestId: string;
  readonly polls: Poll[];
  /** What the administration says of one that is not complete in the end. */
  state?: string;
};

export type DeletionClients = {
  readonly submissions: readonly Submission[];
  /** Statuses of the answers to requests for a token that were not 200. The key is right, always. */
  readonly tokenAnswers: readonly number[];
  /** Submits these users once; rejects only when a fault keeps it from having a token. */
  submitUsers(users: readonly User[]): Promise<Submission>;
  /** Ends the submissions; polls go on. */
  stopSubmitting(): Promise<void>;
  /** Asks for the status of every accepted request once more. */
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
};

/** Starts them. The first submission comes when something was acknowledged. */
export function startDeletionClients(options: DeletionClientOptions): DeletionClients {
  const { sluice, account, producer, random, everyMs } = options;
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
    // A Redis that lost everything lost the tokens too.
    if (reply?.status === 401) token = undefined;
    return submission;
  }

  async function submitSome(): Promise<void> {
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

  const submitter = again(() => submitting, everyMs, submitSome);
  const poller = again(
    () => polling,
    120,
    async () => {
      const open = accepted().filter(({ polls }) => polls.at(-1)?.status !== 'complete');
      // Complete ones are asked for now and then: they must stay so.
      const [old] = accepted().length === 0 ? [] : [random.pick(accepted())];
      for (const submission of old === undefined ? open : [...open, old]) await poll(submission);
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

/** Runs `work` again and again while it is wanted; what fails, as a fault makes it, is tried again. */
export async function again(
  wanted: () => boolean,
  everyMs: number,
  work: () => Promise<void>,
): Promise<void> {
  while (wanted()) {
    await work().catch(() => undefined);
    await new Promise((settle) => setTimeout(settle, everyMs));
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

/** One to four users that something was sent about, half of them just now; now and then the busiest. */
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
