// The Event Visualizer's messages. Everything in them comes from outside, so it is only set as text, within a `bdi`, so that its direction
// does not change the surrounding text.

import { useState } from 'preact/hooks';
import { Facts } from '../parts/parts.js';
import type { Message, Shown } from './state.js';

type Of = Pick<Shown, 'message' | 'at'>;

const previewCharsMax = 200;

// Maps, since a message may contain the name of a property that every object has.
const kinds = new Map<unknown, readonly [name: string, tone: string]>([
  ['event', ['Event', 'accent']],
  ['identify', ['Identify', 'plain']],
  ['user_properties', ['User', 'plain']],
]);
const tones = new Map<unknown, string>([
  ['stored', 'good'],
  ['repeat', 'plain'],
  ['limited', 'warn'],
  ['rejected', 'bad'],
]);

/** One message as a line. The rest of it is rendered when the line is first opened. */
export function Row({ message, at }: Of) {
  const [wasOpen, setWasOpen] = useState(false);
  const [kind, kindTone] = kinds.get(message.type) ?? ['Unknown', 'bad'];
  const status = message.answer?.status;
  const tone = tones.get(status);
  return (
    <li>
      <details onToggle={() => setWasOpen(true)}>
        <summary>
          <Clock time={message.time} at={at} />
          <span class={`chip ${kindTone}`}>{kind}</span>
          <bdi class="name">{nameOf(message)}</bdi>
          <bdi title="User">{whoOf(message)}</bdi>
          <bdi class="code" title="Session">
            {text(message.session_id)}
          </bdi>
          <bdi class="code">{previewOf(message.properties)}</bdi>
          <span class={`chip ${tone ?? 'warn'}`}>{tone === undefined ? 'no answer' : status}</span>
        </summary>
        {wasOpen && <Detail message={message} at={at} />}
      </details>
    </li>
  );
}

function Detail({ message, at }: Of) {
  const { answer, properties } = message;
  const facts: readonly (readonly [string, unknown])[] = [
    ['Answer', answer?.status],
    ['Reason', answer?.message],
    ['Code', answer?.code],
    ['Field', answer?.field],
    ['Retry after', answer?.retry_after && `${answer.retry_after} s`],
    message.type === 'event' ? ['Event', message.event] : ['Type', message.type],
    ['Captured', message.autocaptured === true ? 'automatically' : undefined],
    ['Identity', message.identity],
    ['User id', message.user_id],
    ['Session', message.session_id],
    ['Device time', message.time],
    ['Received', at],
    ['Message id', message.id],
  ];
  const ofMessage = entriesOf(properties).map(([key, value]) => {
    const shown = (
      <>
        <bdi>{text(value)}</bdi> <span class="kind muted">{typeName(value)}</span>
      </>
    );
    return [key, shown] as const;
  });
  const otherwise = properties === undefined || isObject(properties) ? 'None.' : text(properties);
  return (
    <div class="detail">
      <div>
        <h2>Message</h2>
        <Facts of={facts.map(([name, value]) => [name, value == null ? undefined : text(value)] as const)} />
      </div>
      <div>
        <h2>Properties</h2>
        {ofMessage.length > 0 ? <Facts of={ofMessage} /> : <p class="muted">{otherwise}</p>}
      </div>
    </div>
  );
}

/** When a message was sent, by the device's clock if the message has its time: in the reader's zone, and in UTC on hover. */
function Clock({ time, at }: { readonly time: unknown; readonly at: string }) {
  const date = new Date(typeof time === 'string' ? time : at);
  if (Number.isNaN(date.getTime())) return <span class="code">{text(time)}</span>;
  return (
    <span class="code" title={`${date.toISOString().replace('T', ' ').slice(0, 19)} UTC`}>
      {date.toTimeString().slice(0, 8)}.{String(date.getMilliseconds()).padStart(3, '0')}
    </span>
  );
}

function nameOf({ type, event, identity }: Message): string {
  if (type === 'event') return text(event);
  if (type === 'identify') return `as ${text(identity)}`;
  return type === 'user_properties' ? 'Set properties' : text(type);
}

function whoOf({ identity, user_id: userId }: Message): string {
  if (identity !== undefined) return text(identity);
  return userId === undefined ? '' : `user ${text(userId)}`;
}

function previewOf(properties: unknown): string {
  let preview = '';
  for (const [key, value] of entriesOf(properties)) {
    preview += `${preview === '' ? '' : ', '}${key}: ${text(value)}`;
    if (preview.length > previewCharsMax) return preview.slice(0, previewCharsMax);
  }
  return preview;
}

function text(value: unknown): string {
  if (typeof value === 'string') return value;
  return value === undefined ? '' : JSON.stringify(value);
}

function typeName(value: unknown): string {
  if (Array.isArray(value)) return 'list';
  return typeof value === 'string' ? 'text' : value === null ? 'null' : typeof value;
}

function entriesOf(value: unknown): readonly (readonly [string, unknown])[] {
  return isObject(value) ? Object.entries(value) : [];
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
