// Buttons and forms for what the client library can do in a page.

import type { ComponentChildren, InputHTMLAttributes } from 'preact';
import type { PropertyInput } from '../../libraries/client/core/messages.js';
import type { Sluice } from '../../libraries/client/web/surface.js';
import { Button } from '../parts/form.js';
import { hasEvent, makeCall, mark, type Outcome, refused, wasRefused } from './calls.js';
import { Card } from './card.js';

/** The snippet creates it; the library replaces it once the script has loaded. */
export const { sluice } = window as unknown as { readonly sluice: Sluice };

/** Whether this page has opted out. The library does not tell, but only this page changes it. */
const optedOutKey = 'sluice-demo:opted-out';
const isOptedOut = () => localStorage.getItem(optedOutKey) === '1';

/** The outcome of a call that sends a message. */
function sent(arrived: Outcome): Outcome {
  if (isOptedOut()) return 'not recorded: opted out';
  return sluice.userId === undefined ? 'waits for the script' : arrived;
}

const call = (code: string, work: () => Outcome) => makeCall(sluice, code, work);
/** A call that sends nothing. */
const act = (code: string, work: () => unknown, words: string) =>
  call(code, () => {
    work();
    return words;
  });

/** Numbers are sent as numbers. */
function typed(text: string): PropertyInput {
  return text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
}

function track(event = '', key = '', value = ''): void {
  const id = mark();
  const properties = { [key || 'amount']: typed(value), call: id };
  call(`track(${JSON.stringify(event)}, ${JSON.stringify(properties)})`, () => {
    sluice.track(event, properties);
    return wasRefused('an event is dropped') ? refused : sent(hasEvent(id));
  });
}

function identify(identity = ''): void {
  const { identity: before, userId: userIdBefore } = sluice;
  call(`identify(${JSON.stringify(identity)})`, () => {
    sluice.identify(identity);
    const { userId } = sluice;
    if (sluice.identity === before && userId === userIdBefore && userId !== undefined && !isOptedOut())
      return wasRefused() ? refused : 'has this identity already';
    return sent(({ users }) =>
      users.some((user) => user.identity === identity && user.user_ids.includes(String(userId))),
    );
  });
}

function resetIdentity(): void {
  const before = sluice.userId;
  call('resetIdentity()', () => {
    sluice.resetIdentity();
    return sluice.userId === before ? 'already anonymous' : 'a new user';
  });
}

function addUserProperties(key = '', value = ''): void {
  const last_call = mark();
  const properties = { [key || 'plan']: typed(value), last_call };
  call(`addUserProperties(${JSON.stringify(properties)})`, () => {
    sluice.addUserProperties(properties);
    return sent(({ users }) => users.some((user) => user.properties.last_call === last_call));
  });
}

function addEventProperties(key = '', value = ''): void {
  const properties = { [key]: typed(value) };
  call(`addEventProperties(${JSON.stringify(properties)})`, () => {
    sluice.addEventProperties(properties);
    return wasRefused() ? refused : 'kept in a cookie';
  });
}

function removeEventProperty(): void {
  const { value } = document.getElementById('global-key') as HTMLInputElement;
  act(`removeEventProperty(${JSON.stringify(value)})`, () => sluice.removeEventProperty(value), 'removed');
}

function choose(isOut: boolean): void {
  if (isOut) act('optOut()', sluice.optOut, 'nothing is recorded');
  else act('optIn()', sluice.optIn, 'recording');
  if (isOut) localStorage.setItem(optedOutKey, '1');
  else localStorage.removeItem(optedOutKey);
}

type Input = readonly [id: string, label: string, value: string, more?: InputHTMLAttributes];

/** A form that makes a call with what is in its fields. */
function Operation(props: {
  readonly button: string;
  readonly isMain?: true;
  readonly inputs: readonly Input[];
  readonly call: (...values: string[]) => void;
  readonly children?: ComponentChildren;
}) {
  const onSubmit = (event: SubmitEvent) => {
    event.preventDefault();
    props.call(...[...new FormData(event.currentTarget as HTMLFormElement).values()].map(String));
  };
  return (
    <form class="inline" onSubmit={onSubmit}>
      {props.inputs.map(([id, label, value, more]) => (
        <div key={id} class="field">
          <label for={id}>{label}</label>
          <input id={id} name={id} defaultValue={value} {...more} />
        </div>
      ))}
      <div class="buttons">
        <button type="submit" class={props.isMain && 'primary'}>
          {props.button}
        </button>
        {props.children}
      </div>
    </form>
  );
}

export function Operations() {
  return (
    <>
      <Card title="Track an event">
        <Operation
          button="Track"
          isMain
          call={track}
          inputs={[
            ['event', 'Event', 'Order Completed', { list: 'events' }],
            ['event-key', 'Property', 'amount'],
            ['event-value', 'Value', '12.5'],
          ]}
        />
        <datalist id="events">
          <option>Order Completed</option>
          <option>Product Viewed</option>
          <option>Signed Up</option>
        </datalist>
      </Card>
      <Card title="Who the user is">
        <Operation
          button="Identify"
          isMain
          call={identify}
          inputs={[
            ['identity-value', 'Identity', '', { placeholder: 'ada@example.com', autocomplete: 'off' }],
          ]}
        >
          <Button text="Reset identity" act={resetIdentity} />
        </Operation>
        <Operation
          button="Add user property"
          call={addUserProperties}
          inputs={[
            ['user-key', 'User property', 'plan'],
            ['user-value', 'Value', 'pro'],
          ]}
        />
      </Card>
      <Card title="On every event from now on">
        <Operation
          button="Add"
          call={addEventProperties}
          inputs={[
            ['global-key', 'Property', 'theme'],
            ['global-value', 'Value', 'dark'],
          ]}
        >
          <Button text="Remove" act={removeEventProperty} />
          <Button
            text="Clear all"
            act={() => act('clearEventProperties()', sluice.clearEventProperties, 'none left')}
          />
        </Operation>
      </Card>
      <Card title="Sending">
        <div class="buttons">
          <Button text="Flush" act={() => act('flush()', sluice.flush, 'sent at once')} />
          <Button text="Opt out" act={() => choose(true)} />
          <Button text="Opt in" act={() => choose(false)} />
        </div>
        <p class="muted">
          Messages wait half a second for others to go with; <em>Flush</em> sends at once. Close the page, go
          offline, open it twice: nothing is lost, nothing comes twice.
        </p>
      </Card>
    </>
  );
}
