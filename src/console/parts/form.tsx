// Forms and buttons that do one thing each.

import type { ComponentChildren } from 'preact';
import { useContext, useLayoutEffect, useState } from 'preact/hooks';
import { Problem } from './parts.js';
import { DialogHold, useWork, type Work } from './work.js';

/** A form that does one thing, shows its progress and reports errors. Its dialog stays open until the work is done. */
export function Form(props: {
  readonly label: string;
  readonly submit: string;
  readonly work: Work;
  readonly children?: ComponentChildren;
  readonly danger?: boolean;
  readonly inline?: boolean;
  readonly cancel?: () => void;
  /** Whether the work observes its signal, so that the reader can stop it. */
  readonly stops?: boolean;
  /** Why the form cannot be submitted now; empty if it can. */
  readonly cannot?: string;
}) {
  const { busy, stopping, fault, begin, stop } = useWork();
  const [refused, setRefused] = useState('');
  const hold = useContext(DialogHold);
  const { cancel, stops = false, cannot = '' } = props;
  // Set before painting, since Escape may be pressed before the busy form is painted.
  useLayoutEffect(() => {
    if (hold === undefined || !busy) return;
    hold.current = stops ? stop : () => {};
    return () => {
      hold.current = undefined;
    };
  }, [busy]);
  const onSubmit = (event: Event) => {
    event.preventDefault();
    setRefused(cannot);
    if (cannot === '') begin(props.work);
  };
  return (
    <form class={props.inline ? 'inline' : ''} aria-label={props.label} aria-busy={busy} onSubmit={onSubmit}>
      {props.children}
      <div class="buttons">
        {/* Not disabled: it would lose the focus. */}
        <button
          type="submit"
          class={props.danger ? 'primary danger' : 'primary'}
          aria-disabled={busy || cannot !== ''}
        >
          {busy ? 'One moment…' : props.submit}
        </button>
        {cancel !== undefined &&
          (busy && stops ? (
            <button type="button" aria-disabled={stopping} onClick={stop}>
              {stopping ? 'Stopping…' : 'Stop'}
            </button>
          ) : (
            <button type="button" aria-disabled={busy} onClick={() => busy || cancel()}>
              Cancel
            </button>
          ))}
      </div>
      <Problem text={(cannot !== '' && refused) || fault} />
    </form>
  );
}

/** A button that does something at once. `label`: its accessible name, if the text alone does not say what it acts on. */
export function Button(props: {
  readonly text: string;
  readonly label?: string;
  readonly kind?: 'primary' | 'small';
  readonly act: () => void;
}) {
  return (
    <button type="button" class={props.kind} aria-label={props.label} onClick={props.act}>
      {props.text}
    </button>
  );
}

/** A button that does one thing, shows its progress and reports errors. */
export function ActionButton(props: {
  readonly button: string;
  readonly label?: string;
  readonly work: Work;
  readonly small?: boolean;
}) {
  const { button, label, work, small = false } = props;
  const { busy, fault, begin } = useWork();
  return (
    <div class="act">
      <button
        type="button"
        class={small ? 'small' : ''}
        aria-label={busy ? undefined : label}
        aria-disabled={busy}
        onClick={() => begin(work)}
      >
        {busy ? 'One moment…' : button}
      </button>
      <Problem text={fault} />
    </div>
  );
}
