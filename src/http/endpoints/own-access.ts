// What people do with their own access: sessions, password, second factor.

import { forgiveAttempt } from '../../accounts/people/attempts.js';
import { changePassword, changeSecondFactor } from '../../accounts/people/people.js';
import { isFactorSecret, newFactorSecret, useCode } from '../../accounts/people/second-factor.js';
import { endSession, listSessions, type SignedIn } from '../../accounts/people/sessions.js';
import { AdministrationError } from '../../contract/errors.js';
import type { Action } from '../../registry/audit/audit.js';
import type { Person, SecondFactor } from '../../registry/documents.js';
import {
  type Answer,
  begin,
  cookieOf,
  countAttempt,
  type Fields,
  newPasswordOf,
  type Own,
  type Request,
  type SignInOptions,
  textOf,
  turnOf,
  underAudit,
} from './console-session.js';

export const signOut: Own = async (options, request, _fields, { person, session }) =>
  underAudit(options, person, request, 'sign_out', async () => {
    await endSession(options.redis, person.person_id, session.id);
    return { body: {}, headers: [cookieOf(options, request.names.session, '', 0)] };
  });

export const listOwnSessions: Own = async ({ redis }, _request, _fields, { person, session }) => {
  const sessions = await listSessions(redis, person);
  return {
    body: sessions.map(({ person_id: _, password_id: __, ...shown }) => ({
      ...shown,
      this_one: shown.id === session.id,
    })),
  };
};

export const endOwnSession: Own = async (options, request, _fields, { person }) =>
  underAudit(options, person, request, 'end_session', async () => {
    if (!(await endSession(options.redis, person.person_id, request.parameter)))
      throw new AdministrationError('there is no such session');
    return { body: { id: request.parameter, ended: true } };
  });

export const changeOwnPassword: Own = async (options, request, fields, signedIn) => {
  const chosen = newPasswordOf(fields, 'new_password');
  return withPassword(options, request, fields, signedIn, 'change_password', async (person) => {
    const hash = await options.passwords.hash(turnOf(request, person.email), chosen);
    const changed = await changePassword(options.redis, person, hash);
    if (changed === undefined) throw new AdministrationError(overtaken);
    return begin(options, request, changed);
  });
};

export const offerSecondFactor: Own = async (_options, _request, _fields, { person }) => {
  requirePassword(person);
  return { body: newFactorSecret(person.email) };
};

export const setSecondFactor: Own = async (options, request, fields, signedIn) => {
  const secret = textOf(fields, 'secret');
  const code = textOf(fields, 'code');
  if (!isFactorSecret(secret)) throw new AdministrationError('secret must be one that was offered');
  return withPassword(options, request, fields, signedIn, 'set_second_factor', async (person) => {
    const next = useCode({ secret, last_code: 0 }, code, Date.now());
    if (next === undefined) throw new AdministrationError('this code does not belong to the secret');
    return { body: await replaceSecondFactor(options, person, next) };
  });
};

export const removeSecondFactor: Own = (options, request, fields, signedIn) =>
  withPassword(options, request, fields, signedIn, 'remove_second_factor', async (person) => ({
    body: await replaceSecondFactor(options, person, undefined),
  }));

async function replaceSecondFactor({ redis }: SignInOptions, person: Person, next: SecondFactor | undefined) {
  const changed = await changeSecondFactor(redis, person.person_id, person.second_factor, next);
  if (changed === undefined) throw new AdministrationError(overtaken);
  return { second_factor: next !== undefined };
}

/** Does work for which the person has to enter the password again, so that an open browser alone does not suffice. */
async function withPassword(
  options: SignInOptions,
  request: Request,
  fields: Fields,
  { person }: SignedIn,
  action: Action['action'],
  work: (person: Person) => Promise<Answer>,
): Promise<Answer | undefined> {
  requirePassword(person);
  const attempt = await countAttempt(options, request, person.email, person);
  if (attempt === undefined) return undefined;
  return underAudit(options, person, request, action, async () => {
    const given = textOf(fields, 'password');
    if (!(await options.passwords.verify(turnOf(request, person.email), person.password?.hash, given)))
      throw new AdministrationError('this is not your password');
    await forgiveAttempt(options.redis, attempt);
    return work(person);
  });
}

/** Refuses people who sign in with a provider, since they have no password here. */
function requirePassword({ password }: Person): void {
  if (password === undefined)
    throw new AdministrationError(
      'you sign in with your provider, which keeps your password and second factor',
    );
}

const overtaken = 'somebody changed this at the same time: try again';
