// The small parts that all pages use.

import { type ComponentChildren, Fragment } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { onlyDenied } from '../session.js';
import type { Resource } from './resource.js';

const timeForms = {
  day: { dateStyle: 'medium' },
  minute: { dateStyle: 'medium', timeStyle: 'short' },
  second: { dateStyle: 'medium', timeStyle: 'medium' },
  /** With the zone, which paper needs. */
  zone: { dateStyle: 'medium', timeStyle: 'long' },
} as const;

/** A time in the reader's zone, to the minute unless `to` says otherwise; in UTC on hover. */
export function Time({ at, to = 'minute' }: { readonly at: string; readonly to?: keyof typeof timeForms }) {
  const date = new Date(at);
  const text = date.toLocaleString(undefined, timeForms[to]);
  return (
    <time dateTime={at} title={`${date.toISOString().replace('T', ' ').slice(0, 19)} UTC`}>
      {text}
    </time>
  );
}

/** A day such as `2026-03-01`, as the reader would write it. */
export function dayText(day: string): string {
  return new Date(`${day}T12:00:00`).toLocaleDateString(undefined, { dateStyle: 'medium' });
}

/** Today, or the day `later` days after it, in the reader's zone. */
export function today(later = 0): string {
  const then = new Date();
  then.setDate(then.getDate() + later);
  return dayOf(then);
}

/** The day of a time, in the reader's zone. */
export function dayOf(time: Date): string {
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 10);
}

/** `1 user`, or `2,000 users`. `many`: where an `s` is not enough. */
export function amountText(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
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

/**
 * Copies a text, and settles with whether that worked. Pages on http under a host name lack `navigator.clipboard`, but have the older
 * command.
 */
async function copyText(text: string, beside: HTMLElement): Promise<boolean> {
  if (navigator.clipboard !== undefined) {
    const isTaken = await navigator.clipboard.writeText(text).then(
      () => true,
      (error: unknown) => onlyDenied(error, false),
    );
    if (isTaken) return true;
  }
  // Beside the button, since an open dialog keeps the focus inside.
  const field = document.createElement('textarea');
  field.className = 'sr';
  field.value = text;
  beside.after(field);
  field.select();
  const isTaken = document.execCommand('copy');
  field.remove();
  beside.focus();
  return isTaken;
}

/** A button that copies a text and says so. If the browser does not allow that, the text is shown and selected. */
export function Copy(props: { readonly text: string; readonly what: string; readonly label?: string }) {
  const { text, what, label = 'Copy' } = props;
  const [said, setSaid] = useState('');
  const [isShown, setIsShown] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (isShown) field.current?.select();
  }, [isShown]);
  useEffect(() => {
    if (said === '') return;
    const timer = setTimeout(() => setSaid(''), 2_000);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    if (button.current === null) return;
    const isTaken = await copyText(text, button.current);
    if (isTaken) setSaid('Copied');
    setIsShown(!isTaken);
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class="small"
        aria-label={`${label} ${what}`}
        onClick={() => void copy()}
      >
        <span aria-live="polite">{said || label.replace(':', '')}</span>
      </button>
      {isShown && (
        <label class="uncopied">
          The browser does not let this page copy. The text is selected: copy it with the keyboard or the
          menu.
          <textarea ref={field} readOnly rows={3} value={text} />
        </label>
      )}
    </>
  );
}

/** A secret that is shown only this once, after words that say what to do with it. */
export function Secret(props: {
  readonly text: string;
  readonly what: string;
  readonly children?: ComponentChildren;
}) {
  const { text, what, children } = props;
  return (
    <div class="secret" role="status">
      <p>
        {children ?? (
          <>
            <strong>This is the {what}. It is shown only now:</strong> store it where you keep secrets.
          </>
        )}
      </p>
      <p class="line">
        <code class="value">{text}</code>
        <Copy text={text} what={what} />
      </p>
    </div>
  );
}

/** A sentence of help, and a link to the page of the documentation that says more. */
export function Help(props: {
  /** The page's path in the repository. */
  readonly page: string;
  readonly about: string;
  readonly children?: ComponentChildren;
}) {
  return (
    <p class="help muted">
      {props.children}{' '}
      <a href={`/docs/${props.page}`} target="_blank" rel="noopener">
        More about {props.about}
      </a>
    </p>
  );
}

export function Problem({ text }: { readonly text: string }) {
  return text === '' ? null : (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

/** Shows what was loaded, or why there is nothing. `isOld`: the last load failed, so the data is from an earlier one. */
export function Loaded<Data>(props: {
  readonly from: Resource<Data>;
  readonly children: (data: Data, isOld: boolean) => ComponentChildren;
}) {
  const { data, fault, isRefused, reload } = props.from;
  return (
    <>
      {fault !== '' && (
        <p class="problem" role="alert">
          {fault} {data === undefined ? '' : 'What is shown may be old. '}
          {!isRefused && (
            <button type="button" class="small" onClick={reload}>
              Try again
            </button>
          )}
        </p>
      )}
      {data === undefined && fault === '' && <p class="muted">Loading…</p>}
      {data !== undefined && props.children(data, fault !== '')}
    </>
  );
}

/** How many properties are shown beside the number of properties, if there is room. */
const firstShown = 5;

/** The properties of an event, folded up. */
export function Properties({ of }: { readonly of: Readonly<Record<string, string>> }) {
  const all = Object.entries(of);
  if (all.length === 0) return <span class="muted">none</span>;
  return (
    <details>
      <summary>
        {amountText(all.length, 'property', 'properties')}{' '}
        <span class="first muted">
          {all
            .slice(0, firstShown)
            .map(([key, value]) => `${key}: ${value}`)
            .join(', ')}
        </span>
      </summary>
      <Facts of={all} />
    </details>
  );
}

/** Names with their values. Those without a value are left out. */
export function Facts({
  of,
}: {
  readonly of: readonly (readonly [name: string, value: ComponentChildren])[];
}) {
  return (
    <dl class="facts">
      {of
        .filter(([, value]) => value !== undefined)
        .map(([name, value]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
    </dl>
  );
}
