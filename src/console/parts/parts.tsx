// The small parts that all pages are made of.

import { type ComponentChildren, Fragment } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Resource } from './resource.js';

/** A time in the reader's zone, to the minute or, with `seconds`, to the second. On hover it is in UTC. */
export function Time({ at, seconds = false }: { readonly at: string; readonly seconds?: boolean }) {
  const date = new Date(at);
  const form = { dateStyle: 'medium', timeStyle: seconds ? 'medium' : 'short' } as const;
  const text = date.toLocaleString(undefined, form);
  return (
    <time dateTime={at} title={`${date.toISOString().replace('T', ' ').slice(0, 19)} UTC`}>
      {text}
    </time>
  );
}

/** Roughly how long, in the largest unit that fits. */
export function durationText(seconds: number): string {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}

/** A size, in the largest unit of which it has at least one. */
export function bytesText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toLocaleString(undefined, { maximumFractionDigits: value < 10 && unit > 0 ? 1 : 0 })} ${units[unit]}`;
}

/** A button that copies a text and says so. */
export function Copy(props: { readonly text: string; readonly what: string; readonly label?: string }) {
  const { text, what, label = 'Copy' } = props;
  const [said, setSaid] = useState('');
  useEffect(() => {
    if (said === '') return;
    const timer = setTimeout(() => setSaid(''), 2_000);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = () => {
    navigator.clipboard.writeText(text).then(
      () => setSaid('Copied'),
      () => setSaid('Select it and copy it'),
    );
  };
  return (
    <button type="button" class="small" aria-label={`${label} ${what}`} onClick={copy}>
      <span aria-live="polite">{said || label.replace(':', '')}</span>
    </button>
  );
}

/** A secret that is shown only now. */
export function Secret({ text, what }: { readonly text: string; readonly what: string }) {
  return (
    <div class="secret" role="status">
      <p>
        <strong>This is the {what}. It is shown only now:</strong> store it where you keep secrets.
      </p>
      <p class="line">
        <code class="value">{text}</code>
        <Copy text={text} what={what} />
      </p>
    </div>
  );
}

export function Problem({ text }: { readonly text: string }) {
  return text === '' ? null : (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

/** Shows what was loaded, or why there is nothing. `isOld`: the last load failed, so the data is of an earlier one. */
export function Loaded<Data>(props: {
  readonly from: Resource<Data>;
  readonly children: (data: Data, isOld: boolean) => ComponentChildren;
}) {
  const { data, fault, reload } = props.from;
  return (
    <>
      {fault !== '' && (
        <p class="problem" role="alert">
          {fault} {data === undefined ? '' : 'What is shown may be old. '}
          <button type="button" class="small" onClick={reload}>
            Try again
          </button>
        </p>
      )}
      {data === undefined && fault === '' && <p class="muted">Loading…</p>}
      {data !== undefined && props.children(data, fault !== '')}
    </>
  );
}

/** How many properties are shown beside their number, if there is room. */
const firstShown = 5;

/** The properties of an event, folded up. */
export function Properties({ of }: { readonly of: Readonly<Record<string, string>> }) {
  const all = Object.entries(of);
  if (all.length === 0) return <span class="muted">none</span>;
  return (
    <details>
      <summary>
        {all.length === 1 ? '1 property' : `${all.length.toLocaleString()} properties`}{' '}
        <span class="first muted">
          {all
            .slice(0, firstShown)
            .map(([key, value]) => `${key}: ${value}`)
            .join(', ')}
        </span>
      </summary>
      <dl class="facts">
        {all.map(([key, value]) => (
          <Fragment key={key}>
            <dt>{key}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
      </dl>
    </details>
  );
}
