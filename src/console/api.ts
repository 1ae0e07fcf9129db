// Calls the administration: /admin/v1 of the server that the page came from.

import type { Answer, Right } from './commands.js';
import { accounts, person, secondFactorIsRequired, sessionHasEnded } from './session.js';
import { sentenceOf } from './words.js';

export type { Account, Answer, Deletion, EnvironmentOfList, FoundRows, Person } from './commands.js';

/** A refusal in the service's words, or the failure to get an answer. */
export class ApiError extends Error {
  /** The HTTP status; 0 if no answer came. */
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;

  constructor(status: number, message: string, body: Readonly<Record<string, unknown>> = {}) {
    super(message);
    this.status = status;
    this.body = body;
  }

  /** Whether the same request may succeed a little later. */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/**
 * Settles with the answer, which is that of the command `Name`; rejects with ApiError. If the session has ended, shows the sign-in.
 */
export async function call<Name extends Right>(
  method: Method,
  path: string,
  body?: object,
): Promise<Answer<Name>> {
  const asker = person.value;
  const noAnswer = () => {
    throw new ApiError(0, 'The service does not answer.');
  };
  const response = await fetch(`/admin/v1${path}`, {
    method,
    headers: {
      // Forms cannot set a header, so no other site's page can make the browser send this request.
      'sluice-console': '1',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  }).catch(noAnswer);
  // A proxy may refuse in its own words, and the connection may break off in the middle of an answer.
  const answer: Readonly<Record<string, unknown>> = await response
    .json()
    .catch(response.ok ? noAnswer : () => ({}));
  if (response.ok) return answer as Answer<Name>;
  const { message } = (answer.err ?? {}) as { message?: string };
  // If somebody else has signed in since the request was sent, the answer does not concern their session.
  if (response.status === 401 && !isSignIn.test(path) && person.value === asker) sessionHasEnded();
  if (answer.second_factor === 'required') secondFactorIsRequired();
  throw new ApiError(
    response.status,
    sentenceOf(message ?? `The service answered ${response.status}`),
    answer,
  );
}

/** Loads the accounts again, with their environments and settings. */
export async function reloadAccounts(): Promise<Answer<'listAccounts'>> {
  const loaded = await call<'listAccounts'>('GET', '/accounts');
  accounts.value = loaded;
  return loaded;
}

/** The paths of signing in, where 401 means wrong credentials rather than the end of a session. */
const isSignIn = /^\/(session|invitation)(\/|\?|$)/;

/** A path with parameters. Those that are absent or empty are left out. */
export function withQuery(path: string, parameters: Readonly<Record<string, string | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value = ''] of Object.entries(parameters)) if (value !== '') query.set(name, value);
  return `${path}?${query}`.replace(/\?$/, '');
}

/** A part of a path. */
export function part(text: string): string {
  return encodeURIComponent(text);
}
