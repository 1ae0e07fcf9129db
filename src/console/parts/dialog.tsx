// Dialogs over the page.

import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Form } from './form.js';
import { DialogHold } from './work.js';

/** A dialog over the page, which Escape closes too. The focus then returns to where it was. */
export function Dialog(props: {
  readonly title: string;
  readonly close: () => void;
  /** Whether the dialog is wide enough for a table. */
  readonly wide?: true;
  readonly children: ComponentChildren;
}) {
  const id = useId();
  const dialog = useRef<HTMLDialogElement>(null);
  const hold = useRef<(() => void) | undefined>(undefined);
  // The cleanup of `useEffect` would run after the dialog is removed, when the focus has already moved.
  useLayoutEffect(() => {
    const { current } = dialog;
    const before = document.activeElement;
    current?.showModal();
    return () => {
      current?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const close = () => {
    if (hold.current === undefined) props.close();
    else hold.current();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Escape') return;
    event.preventDefault();
    close();
  };
  // A phone's back gesture closes the dialog and cannot be prevented, so a dialog that must stay is opened again.
  const onClose = ({ currentTarget }: { readonly currentTarget: HTMLDialogElement }) => {
    if (!currentTarget.isConnected) return;
    if (hold.current !== undefined) currentTarget.showModal();
    close();
  };
  return (
    <dialog
      ref={dialog}
      class={props.wide && 'wide'}
      aria-labelledby={id}
      onKeyDown={onKeyDown}
      onClose={onClose}
    >
      <h2 id={id}>{props.title}</h2>
      <DialogHold.Provider value={hold}>{props.children}</DialogHold.Provider>
    </dialog>
  );
}

/** A button that asks before it acts, and says what will happen. */
export function Confirm(props: {
  readonly button: string;
  /** What the button acts on, in its accessible name: `Revoke` of `API key Key 1`. */
  readonly of?: string;
  readonly title: string;
  /** Whether the action loses nothing, so that the confirming button need not warn. */
  readonly calm?: boolean;
  /** Whether the button that opens the dialog warns as well. */
  readonly grave?: boolean;
  readonly says: ComponentChildren;
  /** Fields shown in the dialog. */
  readonly asks?: ComponentChildren;
  readonly confirm: string;
  readonly work: () => Promise<void>;
}) {
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <>
      <button
        type="button"
        class={props.grave ? 'grave' : props.of === undefined ? '' : 'small'}
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
          >
            {props.asks}
          </Form>
        </Dialog>
      )}
    </>
  );
}
