// Runs one case: sends mutated bytes on a connection, then a valid request whose answer names its marker, and reports what is wrong with
// the answers.

import type { RawReply } from '../harness/raw-http.js';
import type { FuzzConnection } from './connection.js';
import { readRequest } from './framing.js';

export type FuzzCase = {
  readonly number: number;
  /** The name of the request that was mutated. */
  readonly name: string;
  /** The bytes, in the pieces in which they are sent. */
  readonly pieces: readonly Buffer[];
  /** Pause before each further piece. Without it the pieces come at once. */
  readonly pauseMs?: number;
};

export type Observation = {
  /** All bytes that were sent, including the valid request if it was sent. */
  readonly sent: Buffer;
  readonly replies: readonly RawReply[];
  /** What became of the valid request. `answered`: the connection is in step and can take another case. */
  readonly followUp: 'answered' | 'closed' | 'unanswered';
  readonly fault: string | undefined;
};

/**
 * The statuses of the service and of its HTTP parser. 503 means that Redis was slow; the check of the whole run decides how often that may
 * happen.
 */
const allowed = new Set([100, 200, 201, 204, 304, 400, 401, 404, 405, 409, 413, 415, 429, 431, 503, 505]);
/** Deadline of a valid request on a connection that is in step. */
const answerMsMax = 10_000;

/** A well-formed request that is refused by naming its marker, so that the answer shows to which request it belongs. */
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

/** A marker that no case contains. */
export function markerOf(run: string, caseNumber: number): string {
  return `fv-${run}-${caseNumber}-vf`;
}

const markers = /fv-[\w-]+-vf/g;

/** Runs a case on a connection that is in step. No answer within `quietMs` means that the server waits for more bytes. */
export async function runCase(
  connection: FuzzConnection,
  { pieces, pauseMs }: FuzzCase,
  appId: string,
  marker: string,
  quietMs: number,
): Promise<Observation> {
  connection.forget();
  for (const [index, piece] of pieces.entries()) {
    if (index > 0) {
      await new Promise((resolve) =>
        pauseMs === undefined ? setImmediate(resolve) : setTimeout(resolve, pauseMs),
      );
    }
    if (connection.closed) break;
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
    // If the request was not valid, the reset of the connection may cut off the end of the answer.
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

/** Whether the bytes are exactly one request by the standard, without chunks, so that its end is certain. */
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
