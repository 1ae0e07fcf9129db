// What a form or a button does: one thing at a time, with what went wrong. It can be stopped between two requests.

import { createContext } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api.js';

/** What Escape does while a form of the dialog works, instead of closing it. */
export const DialogHold = createContext<{ current: (() => void) | undefined } | undefined>(undefined);

/** A work of several requests looks at the signal before each; what is sent already is not called back. */
export type Work = (signal: AbortSignal) => Promise<void>;

export type Working = {
  readonly busy: boolean;
  /** Whether it was told to stop, and has not come to that yet. */
  readonly stopping: boolean;
  readonly fault: string;
  readonly begin: (work: Work) => void;
  readonly stop: () => void;
};

/** It also stops when what asked for it is shown no more. */
export function useWork(): Working {
  const [busy, setBusy] = useState(false);
  const [stopping, setStopping] = useState(false);
  const [fault, setFault] = useState('');
  const running = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => running.current?.abort(), []);
  return {
    busy,
    stopping,
    fault,
    begin: (work) => {
      if (running.current !== undefined) return;
      const own = new AbortController();
      running.current = own;
      setBusy(true);
      setFault('');
      work(own.signal)
        .catch((error: unknown) => {
          if (error instanceof ApiError) setFault(error.message);
          else if (!own.signal.aborted) throw error;
        })
        .finally(() => {
          running.current = undefined;
          setBusy(false);
          setStopping(false);
        });
    },
    stop: () => {
      running.current?.abort();
      setStopping(true);
    },
  };
}
