// What an answer means for the records of a request. Only the service itself settles a record. After an answer from a proxy or a wrong
// address, the request is tried again, unless the answer is that it is too large.

import type { LimitName } from '../../contract/limits.js';
import { aboutSending, isAcknowledgement, type OutcomeCode, outcomes } from '../../contract/outcomes.js';
import { producerLimits as limits } from './limits.js';
import { parseObject } from './records.js';
import type { Problem } from './reports.js';
import type { Answer } from './transport.js';

export type ElementRefusal = {
  readonly index: number;
  readonly code: string;
  readonly message: string;
  readonly field?: string;
};

export type Verdict =
  /** All records are settled: the listed ones were refused, all others accepted. */
  | { readonly kind: 'settled'; readonly refusals: readonly ElementRefusal[] }
  /** The whole request is refused, perhaps because of some of its records. */
  | { readonly kind: 'refused'; readonly code: string; readonly message: string; readonly field?: string }
  /** Some users of the request have reached their limit. Only they have to wait, this long. */
  | { readonly kind: 'users_limited'; readonly ms: number; readonly problem: Problem }
  /** The request has to be sent again, not before the time that the service asked for. */
  | { readonly kind: 'later'; readonly ms: number; readonly problem: Problem };

/** The limit per user of a bulk request: if one user reaches it, others may continue. */
const limitOfUser: LimitName = 'bulk_identity';

export function judge(answer: Answer): Verdict {
  const body = parseObject(answer.text);
  if (answer.status === 200 && body !== undefined && isAcknowledgement(body))
    return { kind: 'settled', refusals: readErrors(body) };
  const error = errorOf(body);
  // A gateway that does not accept a request of this size will not accept it later either.
  if (error === undefined && answer.status === 413)
    return {
      kind: 'refused',
      code: codeOfFault(answer),
      message: 'a gateway before Sluice accepts no request of this size',
    };
  if (error === undefined) return later(answer, { code: codeOfFault(answer), message: faultOf(answer) });
  const { code, message, field } = error;
  const limit = code === 'rate_limited' ? limitOf(answer) : undefined;
  const problem: Problem = limit === undefined ? { code, message } : { code, message, limit };
  if (limit === limitOfUser) return { kind: 'users_limited', ms: retryAfterMs(answer), problem };
  if (aboutSending.has(code) || isForLater(code, answer.status)) return later(answer, problem);
  const refusals = readErrors(body as object);
  if (refusals.length > 0) return { kind: 'settled', refusals };
  return { kind: 'refused', code, message, ...(field === undefined ? {} : { field }) };
}

/** The refusal in an answer; undefined unless the service itself has answered. */
export function errorOf(body: object | undefined): Omit<ElementRefusal, 'index'> | undefined {
  const { err } = (body ?? {}) as { err?: { code?: unknown; message?: unknown; field?: unknown } };
  if (typeof err?.code !== 'string') return undefined;
  return {
    code: err.code,
    message: String(err.message ?? ''),
    ...(typeof err.field === 'string' ? { field: err.field } : {}),
  };
}

/** Whether to try again: decided by the code or, if the code is absent or unknown, by the status. */
export function isForLater(code: string | undefined, status: number): boolean {
  const known = Object.hasOwn(outcomes, code ?? '') ? outcomes[code as OutcomeCode] : undefined;
  return known === undefined ? status === 0 || status === 429 || status >= 500 : known.retry === 'later';
}

function later(answer: Answer, problem: Problem): Verdict {
  return { kind: 'later', ms: retryAfterMs(answer), problem };
}

/** The name of the limit that was reached; undefined if the answer does not say. */
function limitOf(answer: Answer): string | undefined {
  return /^"([^"]+)"/.exec(headerOf(answer, 'ratelimit-policy'))?.[1];
}

export function codeOfFault({ status, fault }: Answer): string {
  return status === 0 ? (fault ?? 'no_answer') : `http_${status}`;
}

export function faultOf({ status, fault }: Answer): string {
  return status === 0 ? `no answer came (${fault})` : `the answer ${status} is not from Sluice`;
}

/** Milliseconds that `Retry-After` asks for, in seconds or as a date; 0 when it asks for nothing. */
export function retryAfterMs(answer: Answer): number {
  const header = headerOf(answer, 'retry-after').trim();
  if (header === '') return 0;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return ms > 0 ? Math.min(ms, limits.retryAfterMsMax) : 0;
}

function headerOf({ headers }: Answer, name: string): string {
  return String(headers[name] ?? '');
}

function readErrors(body: object): ElementRefusal[] {
  const { errors } = body as { errors?: unknown };
  if (!Array.isArray(errors)) return [];
  return errors.filter(
    (error): error is ElementRefusal => Number.isSafeInteger(error?.index) && typeof error?.code === 'string',
  );
}
