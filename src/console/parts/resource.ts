// Loads what a page shows: at once, after each change, and repeatedly while the service does not answer.

import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, call } from '../api.js';
import type { Right } from '../commands.js';

export type Resource<Data> = {
  readonly data: Data | undefined;
  /** Why the last load failed; empty if it did not. The data of an earlier load stays. */
  readonly fault: string;
  /** The service refused, and would do so again. */
  readonly isRefused: boolean;
  readonly reload: () => void;
};

const retryMs = 3_000;

/**
 * Loads the answer of the command `Name` from its path, or nothing without a path. With `everyMs` it is reloaded regularly while the page is
 * visible.
 */
export function useResource<Name extends Right>(path: string | undefined, everyMs?: number) {
  return useLoad(path, () => call<Name>('GET', path ?? ''), everyMs);
}

/**
 * Like `useResource`, with any `load`. `of` identifies what is loaded: when it changes, loading starts again; while it is undefined,
 * nothing is loaded.
 */
export function useLoad<Data>(
  of: string | undefined,
  load: () => Promise<Data>,
  everyMs?: number,
): Resource<Data> {
  type State = Pick<Resource<Data>, 'fault' | 'isRefused'> & {
    of?: string | undefined;
    data?: Data | undefined;
  };
  const [state, setState] = useState<State>({ fault: '', isRefused: false });
  const [round, setRound] = useState(0);
  const latest = useRef(0);
  useEffect(() => {
    if (of === undefined) return;
    latest.current += 1;
    const own = latest.current;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = (ms: number) => {
      timer = setTimeout(() => {
        if (document.hidden) again(ms);
        else setRound((count) => count + 1);
      }, ms);
    };
    load().then(
      (data) => {
        if (own !== latest.current) return;
        setState({ of, data, fault: '', isRefused: false });
        if (everyMs !== undefined) again(everyMs);
      },
      (error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        if (own !== latest.current) return;
        const { message: fault, isTemporary } = error;
        setState((known) => ({
          of,
          data: known.of === of ? known.data : undefined,
          fault,
          isRefused: !isTemporary,
        }));
        if (isTemporary) again(retryMs);
      },
    );
    return () => {
      latest.current += 1;
      clearTimeout(timer);
    };
  }, [of, round, everyMs]);
  const isOf = state.of === of;
  return {
    data: isOf ? state.data : undefined,
    fault: isOf ? state.fault : '',
    isRefused: isOf && state.isRefused,
    reload: () => setRound((count) => count + 1),
  };
}
