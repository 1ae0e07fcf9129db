// The receiver of callbacks: a server that keeps every call, and the check that each complete deletion caused a call with a correct
// signature, and not too early.

import { createHmac } from 'node:crypto';
import { bodyServer, listen } from '../harness/listen.js';
import type { Broken } from './broken.js';
import type { Submission } from './deletions.js';

export type Call = { readonly atMs: number; readonly signature: string; readonly body: string };

export type CallReceiver = {
  readonly url: string;
  readonly calls: readonly Call[];
  close(): void;
};

/** Starts a server that accepts every call. */
export async function startCallReceiver(): Promise<CallReceiver> {
  const calls: Call[] = [];
  const server = bodyServer((request, reply, body) => {
    const signature = String(request.headers['sluice-signature']);
    calls.push({ atMs: performance.now(), signature, body: body.toString() });
    reply.end();
  });
  const { url, stop } = await listen(server);
  return { url: `${url}/`, calls, close: stop };
}

type CallBody = { readonly deletion_request_id: string; readonly status: string };

const bodyOf = ({ body }: Call) => JSON.parse(body) as CallBody;

export function findUncalled(submissions: readonly Submission[], calls: readonly Call[]): Submission[] {
  const called = new Set(calls.map((call) => bodyOf(call).deletion_request_id));
  return submissions.filter(
    ({ requestId, polls }) => polls.some(({ status }) => status === 'complete') && !called.has(requestId),
  );
}

export function findCallFaults(
  submissions: readonly Submission[],
  calls: readonly Call[],
  secret: string,
): Broken[] {
  const byId = new Map(submissions.map((submission) => [submission.requestId, submission]));
  const faults = calls.flatMap((call): Broken[] => {
    const { deletion_request_id: what, status } = bodyOf(call);
    const isGenuine = call.signature === signatureOf(secret, call);
    if (!isGenuine) return [{ kind: 'wrongly signed', what, detail: call.signature }];
    const later = byId
      .get(what)
      ?.polls.find((poll) => poll.invokedMs > call.atMs && poll.status === 'pending');
    if (status === 'complete' && later === undefined) return [];
    return [{ kind: 'called too early', what, detail: later?.status ?? status }];
  });
  return [
    ...faults,
    ...findUncalled(submissions, calls).map(({ requestId }) => ({
      kind: 'not called',
      what: requestId,
      detail: `${calls.length} calls`,
    })),
  ];
}

function signatureOf(secret: string, { signature, body }: Call): string {
  const seconds = /^t=(\d+),/.exec(signature)?.[1] ?? '';
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`;
}
