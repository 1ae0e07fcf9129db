// Signing in, and the page of an invitation.

import { useState } from 'preact/hooks';
import { type Answer, ApiError, call } from './api.js';
import { goAway } from './parts/draft.js';
import { CodeField, Field, useField } from './parts/fields.js';
import { Form } from './parts/form.js';
import { Brand } from './parts/icons.js';
import { Loaded, Problem } from './parts/parts.js';
import { useLoad } from './parts/resource.js';
import { roleNames } from './parts/roles.js';
import { go, hash } from './router.js';
import { notice, person, singleSignOn } from './session.js';

type Begun = Answer<'signIn'>;

function enter(begun: Begun): void {
  notice.value = '';
  person.value = begun.person;
}

export function SignIn() {
  const email = useField('');
  const password = useField('');
  const [code, setCode] = useState<string | undefined>(undefined);
  const work = async () => {
    try {
      enter(
        await call<'signIn'>('POST', '/session', {
          email: email.value,
          password: password.value,
          ...(code === undefined ? {} : { code }),
        }),
      );
    } catch (error) {
      const needed = error instanceof ApiError && error.body.second_factor === 'needed';
      if (!needed) throw error;
      setCode('');
    }
  };
  return (
    <main class="way-in">
      <h1>
        <Brand />
      </h1>
      <div class="card">
        <Problem text={notice.value || whyNotSignedOn()} />
        {singleSignOn.value && (
          <p>
            <a class="button" href="/admin/v1/sign_on" onClick={goAway}>
              Sign in with single sign-on
            </a>
          </p>
        )}
        <Form label="Sign in" submit="Sign in" work={work}>
          <Field label="E-mail" type="email" {...email} complete="username" required />
          <Field label="Password" type="password" {...password} complete="current-password" required />
          {code !== undefined && <CodeField value={code} set={setCode} />}
        </Form>
      </div>
      <p class="muted">
        No access yet? An administrator of your account invites you. Password forgotten? An operator of this
        service makes you a link.
      </p>
    </main>
  );
}

// A map, since the address may contain the name of a property that every object has.
const refusals: ReadonlyMap<string | null, string> = new Map([
  ['provider', 'The single sign-on failed. Try again, or ask an operator of this service.'],
  ['again', 'The single sign-on took too long, or began in another window. Try again.'],
  ['not_in', 'Your single sign-on gives you no access here. Ask an operator of this service.'],
  ['unavailable', 'The service cannot sign you in now. Try again in a while.'],
]);

/** Why the browser came back from the provider without a session. */
function whyNotSignedOn(): string {
  return refusals.get(new URLSearchParams(location.search).get('sign_on')) ?? '';
}

export function Invitation() {
  const invitation = hash.value;
  const password = useField('');
  const found = useLoad(invitation, () => call<'showInvitation'>('POST', '/invitation', { invitation }));
  const work = async () => {
    const begun = await call<'acceptInvitation'>('POST', '/invitation/accept', {
      invitation,
      password: password.value,
    });
    // The link is used up, so it should not stay in the history.
    history.replaceState(null, '', '/');
    go('/');
    enter(begun);
  };
  return (
    <main class="way-in">
      <h1>
        <Brand name="Welcome to Sluice" />
      </h1>
      <div class="card">
        <Loaded from={found}>
          {(invited) => (
            <>
              <p>
                You are invited as <strong>{invited.email}</strong> with the role{' '}
                <strong>{roleNames[invited.role]}</strong>. Choose a password, and you are in.
              </p>
              <Form label="Invitation" submit="Choose password" work={work}>
                <input type="hidden" name="username" autocomplete="username" value={invited.email} />
                <Field
                  label="Password"
                  type="password"
                  {...password}
                  complete="new-password"
                  hint={`At least ${invited.password_length_min} characters. A few words are easier to remember than random characters.`}
                  required
                />
              </Form>
            </>
          )}
        </Loaded>
      </div>
    </main>
  );
}
