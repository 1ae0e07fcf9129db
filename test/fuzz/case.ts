// One case: mutated bytes on a connection, then a valid request whose answer names its marker. Says what is
// wrong with what came back.

import type { RawReply } from '../support/raw-http.js';
import type { FuzzConnection } from './connection.js';
import { readRequest } from './framing.js';

export type FuzzCase = {
  readonly number: number;
  /** What was mutated. */
  readonly name: string;
  /** The bytes in the pieces in which they are sent. */
  readonly pieces: readonly Buffer[];
};

export type Observation = {
  /** All bytes sent, the valid request's too if it was. */
  readonly sent: Buffer;
  readonly replies: readonly RawReply[];
  /** `answered`: the connection is in step and can take another case. */
  readonly followUp: 'answered' | 'closed' | 'unanswered';
  readonly fault: string | undefined;
};

/**
 * The service's own statuses, 100, and what its HTTP parser answers by itself. 503 says that Redis was slow: how
 * often that may be is decided over the whole run.
 */
const allowed = new Set([100, 200, 201, 204, 304, 400, 401, 404, 405, 413, 415, 429, 431, 503, 505]);
/** A valid request on a connection that is in step is answered by then. */
const answerMsMax = 10_000;

/** A valid request that is refused with its marker: the answer says which request it belongs to. */
export function followUpOf(appId: string, marker: string): Buffer {
  const body = JSON.stringify({
    app_id: appId,
    event: 'Next',
    identity: 'next',
    properties: { [marker]: [[]] },
  });
  return Buffer.from(
    `POST /api/track HTTP/1.1\r\nHost: sluice.test\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
}

/** Names a marker that no case contains. */
export function markerOf(run: string, caseNumber: number): string {
  return `fv-${run}-${caseNumber}-vf`;
}

const markers = /fv-[\w-]+-vf/g;

/** Runs a case on a connection that is in step. What is not answered after `quietMs` waits for more bytes. */
export async function runCase(
  connection: FuzzConnection,
  { pieces }: FuzzCase,
  appId: string,
  marker: string,
  quietMs: number,
): Promise<Observation> {
  connection.forget();
  for (const [index, piece] of pieces.entries()) {
    if (index > 0) await new Promise((resolve) => setImmediate(resolve));
    connection.write(piece);
  }
  const mutated = Buffer.concat(pieces);
  const whole = isOneRequest(mutated);
  await connection.wait(() => connection.replies.length > 0, whole ? answerMsMax : quietMs);
  const repliesBefore = connection.replies.length;
  const observe = (sent: Buffer, followUp: Observation['followUp'], fault?: string): Observation => ({
    sent,
    replies: connection.replies,
    followUp,
    fault: connection.garbage ?? faultOf(connection.replies, marker) ?? fault,
  });
  if (connection.closed) {
    // Of an answer to what is no request, the reset of the connection may cut off the end.
    const { cutOff } = connection;
    if (!whole) return observe(mutated, 'closed');
    if (cutOff !== undefined)
      return observe(mutated, 'closed', `half an answer to a whole request: ${cutOff}`);
    return observe(mutated, 'closed', repliesBefore === 0 ? 'hangs up on a whole request' : undefined);
  }
  if (whole && repliesBefore === 0) return observe(mutated, 'unanswered', 'a whole request is not answered');

  const followUp = followUpOf(appId, marker);
  const sent = Buffer.concat([mutated, followUp]);
  connection.write(followUp);
  const isAnswered = () => connection.replies.some(({ body }) => body.includes(marker));
  const inStep = whole && connection.replies[0]?.status !== 100;
  const answered = await connection.wait(isAnswered, inStep ? answerMsMax : 4 * quietMs);
  if (answered) {
    const finals = connection.replies.filter(({ status }) => status >= 200).length;
    const extra = whole && finals !== 2 ? `${finals - 1} answers to one request` : undefined;
    return observe(sent, 'answered', extra);
  }
  if (connection.closed) return observe(sent, 'closed');
  return observe(
    sent,
    'unanswered',
    inStep ? 'a valid request behind a whole one is not answered' : undefined,
  );
}

const requestLine = /^[A-Z]+ \/[!-~]* HTTP\/1\.1$/;
const headerLine = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*$/;

/** Whether by the standard, and without chunks, the bytes are exactly one request: then its end is known. */
function isOneRequest(bytes: Buffer): boolean {
  const request = readRequest(bytes, 0);
  if (request === undefined || request.chunked || request.end !== bytes.length) return false;
  const head = bytes.toString('latin1', 0, bytes.indexOf('\r\n\r\n'));
  const [first = '', ...lines] = head.split('\r\n');
  return requestLine.test(first) && lines.every((line) => headerLine.test(line));
}

function faultOf(replies: readonly RawReply[], marker: string): string | undefined {
  for (const [index, { status, head, body }] of replies.entries()) {
    if (!allowed.has(status)) return `answers ${status}: ${body.slice(0, 200)}`;
    const found = [...(head + body).matchAll(markers)].map(([text]) => text);
    if (found.some((text) => text !== marker))
      return `answers with what another request sent: ${found.join()}`;
    if (found.length > 0 && index < replies.length - 1) return 'answers once more after the last request';
  }
  return undefined;
}
