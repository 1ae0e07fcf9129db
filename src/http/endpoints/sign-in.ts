// Signing in to the console with a password, or by an invitation.

import { forgiveAttempt } from '../../accounts/people/attempts.js';
import {
  acceptInvitation,
  changeSecondFactor,
  findInvited,
  findPerson,
} from '../../accounts/people/people.js';
import { useCode } from '../../accounts/people/second-factor.js';
import { findSession } from '../../accounts/people/sessions.js';
import { AdministrationError } from '../../contract/errors.js';
import { people as bounds } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import type { Person } from '../../registry/documents.js';
import type { Exchange } from '../protocol/exchange.js';
import {
  begin,
  countAttempt,
  newPasswordOf,
  type Open,
  type SignInOptions,
  sessionView,
  textOf,
  turnOf,
  underAudit,
} from './console-session.js';

export const signIn: Open = async (options, request, fields) => {
  const { redis } = options;
  const email = textOf(fields, 'email').trim().toLowerCase();
  const password = textOf(fields, 'password');
  const person = email.includes('@') ? await findPerson(redis, email) : undefined;
  const attempt = await countAttempt(options, request, email, person);
  if (attempt === undefined) return;
  const isRight = await options.passwords.verify(turnOf(request, email), person?.password?.hash, password);
  if (person === undefined) return void refuseWrong(request.exchange);
  return underAudit(options, person, request, 'sign_in', async () => {
    if (!isRight) return void refuseWrong(request.exchange);
    const code = fields.code === undefined ? undefined : textOf(fields, 'code');
    if (person.second_factor !== undefined && code === undefined)
      return void refuseWrong(request.exchange, 'A code from your second factor is needed.', 'needed');
    if (!(await hasRightCode(options, person, code)))
      return void refuseWrong(request.exchange, 'This code is wrong or was used before.', 'wrong');
    await forgiveAttempt(redis, attempt);
    return begin(options, request, person);
  });
};

/** Answers 200 even without a session: a page asks before it knows whether anybody is signed in. */
export const showSession: Open = async ({ redis, hasProvider }, { cookie: secret }) => {
  const found = secret === undefined ? undefined : await findSession(redis, secret);
  const shown =
    found === undefined ? { person: null } : await sessionView(redis, found.person, found.session);
  return { body: { ...shown, single_sign_on: hasProvider } };
};

export const showInvitation: Open = async ({ redis }, _request, fields) => {
  const invited = await findInvited(redis, textOf(fields, 'invitation'));
  if (invited === undefined) throw new AdministrationError(usedUp);
  const { email, role } = invited;
  return { body: { email, role, password_length_min: bounds.passwordLengthMin } };
};

export const accept: Open = async (options, request, fields) => {
  const { redis, passwords } = options;
  const invitation = textOf(fields, 'invitation');
  const password = newPasswordOf(fields, 'password');
  // A password is hashed only for a caller who has a valid link.
  const invited = await findInvited(redis, invitation);
  if (invited === undefined) throw new AdministrationError(usedUp);
  return underAudit(options, invited, request, 'accept_invitation', async () => {
    const hash = await passwords.hash(turnOf(request, invited.email), password);
    const person = await acceptInvitation(redis, invitation, hash);
    if (person === undefined) throw new AdministrationError(usedUp);
    return begin(options, request, person);
  });
};

/** Checks the code and uses it up. True if the person has no second factor. */
async function hasRightCode(options: SignInOptions, person: Person, code = ''): Promise<boolean> {
  const { second_factor: factor } = person;
  if (factor === undefined) return true;
  const next = useCode(factor, code, Date.now());
  if (next === undefined) return false;
  // If a code is used twice at the same time, the second use finds it used.
  return (await changeSecondFactor(options.redis, person.person_id, factor, next)) !== undefined;
}

function refuseWrong(
  exchange: Exchange,
  message = 'The e-mail address or the password is wrong.',
  secondFactor?: 'needed' | 'wrong',
): void {
  const more = secondFactor === undefined ? {} : { second_factor: secondFactor };
  const reason = rejection('unauthorized', message);
  exchange.refuse(reason, { error: message, message, ...more }, [
    ['WWW-Authenticate', 'Session realm="sluice-console"'],
  ]);
}

const usedUp = 'This invitation was used, has ended, or was replaced by a later one. Ask for another one.';
