// The Event Visualizer: pairs with a device by the code that the device shows, and lists what it sends. It is for people who know the
// ADMIN_TOKEN or are signed in to the console.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Field, useField } from '../parts/fields.js';
import { Button, Form } from '../parts/form.js';
import { Problem } from '../parts/parts.js';
import { hash } from '../router.js';
import { person } from '../session.js';
import { type Connection, connect } from './connection.js';
import { Row } from './rows.js';
import { cleared, first, heard, pairAgain, pauseOrResume, type State, signedIn } from './state.js';

export function Visualizer() {
  const [state, setState] = useState<State>(first);
  const change = (by: (known: State) => Partial<State>) => setState((known) => ({ ...known, ...by(known) }));
  const token = useField('');
  const code = useField(() => new URLSearchParams(hash.value).get('code') ?? '');
  const connection = useRef<Connection | undefined>(undefined);
  const { phase, asksToken, focus, appId, rows, held, isPaused } = state;
  useEffect(() => {
    document.title = 'Event Visualizer · Sluice';
    return () => connection.current?.leave();
  }, []);
  useEffect(() => {
    if (person.value != null && token.value === '') change(() => signedIn);
  }, [person.value]);
  useLayoutEffect(() => {
    const element = document.getElementById(focus.on);
    element?.focus();
    if (element instanceof HTMLInputElement) element.select();
  }, [focus]);
  /** Settles once it is known whether the service answers. Then it keeps trying to connect. */
  const pair = () =>
    new Promise<void>((settle) => {
      connection.current?.leave();
      change(() => ({ problem: '' }));
      // Without a token, the service identifies the person who is signed in to the console.
      connection.current = connect(asksToken ? token.value : undefined, code.value, (said) => {
        change((known) => heard(known, said));
        if (['paired', 'refused', 'lost'].includes(said.type)) settle();
      });
    });
  const again = () => {
    code.set('');
    change(() => ({ ...pairAgain, notice: '', focus: { on: 'code' } }));
  };
  return (
    <>
      <header class="bar">
        <h1>
          Event Visualizer <span class="of">· Sluice</span>
        </h1>
        <p role="status">
          <span id="status" class={`chip ${state.tone}`}>
            {state.status}
          </span>
        </p>
        <nav>
          <a href="/live">Console</a>
        </nav>
      </header>
      <main id="page" tabIndex={-1}>
        {phase === 'form' && (
          <section id="pair" class="card middle" aria-label="Pair with a device">
            {person.value != null && <p class="hint">You are signed in as {person.value.email}.</p>}
            <Form label="Pair with a device" submit="Show events" work={pair} inline>
              {asksToken && (
                <Field
                  label="ADMIN_TOKEN"
                  type="password"
                  {...token}
                  required
                  more={{ id: 'token', maxLength: 1000 }}
                />
              )}
              <Field
                label="Code on the device"
                {...code}
                required
                more={{ id: 'code', maxLength: 20, placeholder: 'K7P-3XM', autocapitalize: 'characters' }}
              />
            </Form>
            <Problem text={state.problem} />
            <p class="hint">
              On the device, start pairing: shake it, or call <code>startEVPairing</code>. It shows a code
              that is good for ten minutes.{' '}
              {asksToken && (
                <>
                  With <code>npm start</code>, the token is in <code>.data/admin-token</code>.
                </>
              )}
            </p>
          </section>
        )}
        {appId !== '' && (
          <section aria-label="Events of the device">
            <div class="tools">
              <p class="line">
                Environment {appId} <span class="muted">{tallyOf(state)}</span>
              </p>
              <div class="buttons">
                <button
                  type="button"
                  id="pause"
                  aria-pressed={isPaused}
                  onClick={() => change(pauseOrResume)}
                >
                  {!isPaused ? 'Pause' : held.length > 0 ? `Resume (${held.length} new)` : 'Resume'}
                </button>
                <Button text="Clear" act={() => change(() => cleared)} />
                {phase === 'paired' && <Button text="End pairing" act={() => connection.current?.end()} />}
                {phase === 'ended' && (
                  <button type="button" id="again" class="primary" onClick={again}>
                    Pair again
                  </button>
                )}
              </div>
            </div>
            {state.notice !== '' && (
              <p class="problem soft" role="alert">
                {state.notice}
              </p>
            )}
            {rows.length + held.length === 0 && (
              <p class="empty">
                <strong>Waiting for events.</strong> Use the app on the device. What it sends appears here
                within about a second, the newest first.
              </p>
            )}
            {rows.length > 0 && (
              <ol class="list" aria-label="Messages, the newest first">
                {rows.map(({ key, message, at }) => (
                  <Row key={key} message={message} at={at} />
                ))}
              </ol>
            )}
          </section>
        )}
      </main>
    </>
  );
}

function tallyOf({ counts, missed }: State): string {
  const parts = ['stored', 'repeat', 'limited', 'rejected']
    .filter((name) => (counts[name] ?? 0) > 0)
    .map((name) => `${counts[name]} ${name}`);
  if (missed > 0) parts.push(`${missed} not shown: too many at once`);
  return parts.join(' · ');
}
