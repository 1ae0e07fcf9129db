// Runs the work of a form or a button, one piece at a time. It keeps the error, and can stop between two requests.

import { createContext } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api.js';

/** While a form in the dialog is busy, Escape calls this instead of closing the dialog. */
export const DialogHold = createContext<{ current: (() => void) | undefined } | undefined>(undefined);

/** Work that makes several requests checks the signal before each of them. What was already sent is not undone. */
export type Work = (signal: AbortSignal) => Promise<void>;

/** The work also stops when its form or button is no longer shown. */
export function useWork() {
  const [busy, setBusy] = useState(false);
  const [stopping, setStopping] = useState(false);
  const [fault, setFault] = useState('');
  const running = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => running.current?.abort(), []);
  return {
    busy,
    /** Whether the work was told to stop but is still running. */
    stopping,
    fault,
    begin: (work: Work) => {
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
