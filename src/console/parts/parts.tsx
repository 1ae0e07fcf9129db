// The small parts that all pages are made of.

import { type ComponentChildren, Fragment } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api.js';
import type { Resource } from './resource.js';

/** A time in the reader's zone, to the minute, or where several are near each other to the second; in UTC on hover. */
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

/** About how long, in the largest unit that says it. */
export function durationText(seconds: number): string {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
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
        <strong>This is the {what}. It is shown only now:</strong> keep it where secrets are kept.
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

/** What was loaded, or why it is not there. */
export function Loaded<Data>(props: {
  readonly from: Resource<Data>;
  readonly children: (data: Data) => ComponentChildren;
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
      {data !== undefined && props.children(data)}
    </>
  );
}

export type Column<Row> = {
  readonly title: string;
  readonly text: (row: Row) => string;
  /** Instead of the text. */
  readonly cell?: (row: Row) => ComponentChildren;
  /** Numbers stand with their last digits below each other. */
  readonly number?: true;
  /** By what the reader may have the rows sorted, if they may. */
  readonly by?: (row: Row) => string | number;
};

type Order<Row> = { readonly column: Column<Row>; readonly isUp: boolean };

function sorted<Row>(rows: readonly Row[], order: Order<Row> | undefined): readonly Row[] {
  const { by } = order?.column ?? {};
  if (order === undefined || by === undefined) return rows;
  const sign = order.isUp ? 1 : -1;
  return rows.toSorted((one, other) => {
    const [a, b] = [by(one), by(other)];
    return sign * (typeof a === 'string' ? a.localeCompare(String(b)) : a - Number(b));
  });
}

/** A table that can be copied as CSV. Narrow screens show each row as a list of titles and cells. */
export function Table<Row>(props: {
  readonly caption: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  readonly empty: ComponentChildren;
  readonly actions?: (row: Row) => ComponentChildren;
  /** Only so many rows until the reader asks for all. */
  readonly first?: number;
}) {
  const { caption, columns, rows, keyOf, empty, actions, first = rows.length } = props;
  const [wantsAll, setWantsAll] = useState(false);
  const [sorting, setSorting] = useState<{ title: string; isUp: boolean } | undefined>(undefined);
  const column = columns.find(({ title }) => title === sorting?.title);
  const order = column && sorting && { column, isUp: sorting.isUp };
  const ordered = sorted(rows, order);
  const shown = wantsAll ? ordered : ordered.slice(0, first);
  if (rows.length === 0) return <p class="empty">{empty}</p>;
  const csv = [
    columns.map(({ title }) => title),
    ...ordered.map((row) => columns.map(({ text }) => text(row))),
  ]
    .map((cells) => cells.map(csvCell).join(','))
    .join('\r\n');
  return (
    <div class="table">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls sideways has to be reached by the keyboard */}
      <section class="scroll" aria-label={caption} tabIndex={0}>
        <table>
          <caption class="sr">{caption}</caption>
          <thead>
            <tr>
              {columns.map(({ title, number, by }) => {
                const isUp = sorting?.title === title ? sorting.isUp : undefined;
                return (
                  <th
                    key={title}
                    scope="col"
                    class={number && 'number'}
                    aria-sort={isUp === undefined ? undefined : isUp ? 'ascending' : 'descending'}
                  >
                    {by === undefined ? (
                      title
                    ) : (
                      // What is largest or latest comes first; a second click turns it round.
                      <button
                        type="button"
                        class="sort"
                        onClick={() => setSorting({ title, isUp: isUp === false })}
                      >
                        {title}
                      </button>
                    )}
                  </th>
                );
              })}
              {actions !== undefined && (
                <th scope="col">
                  <span class="sr">Actions</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={keyOf(row)}>
                {columns.map(({ title, text, cell, number }) => (
                  <td key={title} data-title={title} class={number && 'number'}>
                    <div>{cell === undefined ? text(row) : cell(row)}</div>
                  </td>
                ))}
                {actions !== undefined && (
                  <td class="actions">
                    <div>{actions(row)}</div>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      <p class="below">
        <span class="muted">
          {shown.length < rows.length && `${shown.length} of `}
          {rows.length} {rows.length === 1 ? 'row' : 'rows'}
        </span>
        {shown.length < rows.length && (
          <button
            type="button"
            class="small"
            aria-label={`Show all of ${caption}`}
            onClick={() => setWantsAll(true)}
          >
            Show all
          </button>
        )}
        <Copy text={csv} label="Copy as CSV:" what={caption} />
      </p>
    </div>
  );
}

/** A spreadsheet would take what begins so for a formula. */
function csvCell(text: string): string {
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

/** A form that does one thing: it shows progress and what went wrong, and gives the focus back. */
export function Form(props: {
  readonly label: string;
  readonly submit: string;
  readonly work: () => Promise<void>;
  readonly children?: ComponentChildren;
  readonly danger?: boolean;
  readonly inline?: boolean;
  readonly cancel?: () => void;
}) {
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState('');
  const onSubmit = (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setFault('');
    props
      .work()
      .catch((error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        setFault(error.message);
      })
      .finally(() => setBusy(false));
  };
  return (
    <form class={props.inline ? 'inline' : ''} aria-label={props.label} onSubmit={onSubmit}>
      {props.children}
      <div class="buttons">
        <button type="submit" class={props.danger ? 'primary danger' : 'primary'} disabled={busy}>
          {busy ? 'One moment…' : props.submit}
        </button>
        {props.cancel !== undefined && (
          <button type="button" onClick={props.cancel}>
            Cancel
          </button>
        )}
      </div>
      <Problem text={fault} />
    </form>
  );
}

/** A button that does one thing beside a form: it shows progress and what went wrong. */
export function Act(props: {
  readonly button: string;
  readonly label?: string;
  readonly work: () => Promise<void>;
  readonly disabled?: boolean;
  readonly small?: boolean;
}) {
  const { button, label, work, disabled = false, small = false } = props;
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState('');
  const act = () => {
    setBusy(true);
    setFault('');
    work()
      .catch((error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        setFault(error.message);
      })
      .finally(() => setBusy(false));
  };
  return (
    <div class="act">
      <button
        type="button"
        class={small ? 'small' : ''}
        aria-label={busy ? undefined : label}
        disabled={disabled || busy}
        onClick={act}
      >
        {busy ? 'One moment…' : button}
      </button>
      <Problem text={fault} />
    </div>
  );
}

export function Check(props: {
  readonly label: string;
  readonly value: boolean;
  readonly set: (value: boolean) => void;
  readonly hint: string;
}) {
  const id = useId();
  return (
    <div class="field check">
      <input
        id={id}
        type="checkbox"
        checked={props.value}
        aria-describedby={`${id}-hint`}
        onChange={(event) => props.set(event.currentTarget.checked)}
      />
      <label for={id}>{props.label}</label>
      <p id={`${id}-hint`} class="hint">
        {props.hint}
      </p>
    </div>
  );
}

/** For what an app shows as the second factor. */
export function CodeField({ value, set }: { readonly value: string; readonly set: (value: string) => void }) {
  return (
    <Field
      label="Code"
      value={value}
      set={set}
      mode="numeric"
      complete="one-time-code"
      hint="The six digits that your app shows now."
      required
    />
  );
}

export function Field(props: {
  readonly label: string;
  readonly value: string;
  readonly set: (value: string) => void;
  readonly hint?: string;
  readonly type?: 'text' | 'email' | 'password' | 'number';
  readonly required?: boolean;
  readonly complete?: string;
  readonly mode?: 'numeric';
  readonly lines?: number;
}) {
  const id = useId();
  const { label, value, set, hint, type = 'text', required = false, complete = 'off', lines, mode } = props;
  const common = {
    id,
    value,
    required,
    spellcheck: false,
    ...(hint === undefined ? {} : { 'aria-describedby': `${id}-hint` }),
    onInput: (event: Event) => set((event.currentTarget as HTMLInputElement | HTMLTextAreaElement).value),
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {lines === undefined ? (
        <input
          {...common}
          // The types tell kinds of fields apart that are one here.
          type={type as 'text'}
          // The attribute is for password managers, which know these words.
          autocomplete={complete as 'off'}
          {...(mode === undefined ? {} : { inputMode: mode })}
        />
      ) : (
        <textarea {...common} rows={lines} />
      )}
      {hint !== undefined && (
        <p id={`${id}-hint`} class="hint">
          {hint}
        </p>
      )}
    </div>
  );
}

export function Choice<Value extends string>(props: {
  readonly label: string;
  readonly value: Value;
  readonly options: readonly (readonly [value: Value, text: string])[];
  readonly set: (value: Value) => void;
  readonly hint?: string;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select
        id={id}
        value={props.value}
        aria-describedby={props.hint === undefined ? undefined : `${id}-hint`}
        onChange={(event) => props.set(event.currentTarget.value as Value)}
      >
        {props.options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      {props.hint !== undefined && (
        <p id={`${id}-hint`} class="hint">
          {props.hint}
        </p>
      )}
    </div>
  );
}

/** A dialog over the page. It ends by Escape, too. */
export function Dialog(props: {
  readonly title: string;
  readonly close: () => void;
  readonly children: ComponentChildren;
}) {
  const id = useId();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={id} onClose={props.close}>
      <h2 id={id}>{props.title}</h2>
      {props.children}
    </dialog>
  );
}

/** A button that asks before it acts, and says what will happen. */
export function Confirm(props: {
  readonly button: string;
  /** Tells buttons of one name apart. */
  readonly of?: string;
  readonly title: string;
  /** Whether nothing is lost by it. */
  readonly calm?: boolean;
  readonly says: ComponentChildren;
  readonly confirm: string;
  readonly work: () => Promise<void>;
}) {
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <>
      <button
        type="button"
        class={props.of === undefined ? '' : 'small'}
        aria-label={props.of === undefined ? undefined : `${props.button} ${props.of}`}
        onClick={() => setOpen(true)}
      >
        {props.button}
      </button>
      {open && (
        <Dialog title={props.title} close={close}>
          <div class="says">{props.says}</div>
          <Form
            label={props.title}
            submit={props.confirm}
            danger={props.calm !== true}
            cancel={close}
            work={async () => {
              await props.work();
              close();
            }}
          />
        </Dialog>
      )}
    </>
  );
}

/** The properties of an event, folded up. */
export function Properties({ of }: { readonly of: Readonly<Record<string, string>> }) {
  const all = Object.entries(of);
  if (all.length === 0) return <span class="muted">none</span>;
  return (
    <details>
      <summary>{all.length === 1 ? '1 property' : `${all.length.toLocaleString()} properties`}</summary>
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
