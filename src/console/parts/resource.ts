// What a page shows of the service: loaded at once, again after a change, and again by itself while the service is away.

import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, call } from '../api.js';

export type Resource<Data> = {
  readonly data: Data | undefined;
  /** Of the last load; what was loaded before stays. */
  readonly fault: string;
  readonly reload: () => void;
};

const awayMs = 3_000;

/** Loads a path. With `everyMs` it is loaded again as long as the page is visible. Without a path nothing is loaded. */
export function useResource<Data>(path: string | undefined, everyMs?: number): Resource<Data> {
  const [state, setState] = useState<{ path?: string | undefined; data?: Data; fault: string }>({
    fault: '',
  });
  const [round, setRound] = useState(0);
  const latest = useRef(0);
  useEffect(() => {
    if (path === undefined) return;
    latest.current += 1;
    const own = latest.current;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = (ms: number) => {
      timer = setTimeout(() => {
        if (document.hidden) again(ms);
        else setRound((count) => count + 1);
      }, ms);
    };
    call<Data>('GET', path).then(
      (data) => {
        if (own !== latest.current) return;
        setState({ path, data, fault: '' });
        if (everyMs !== undefined) again(everyMs);
      },
      (error: unknown) => {
        if (own !== latest.current || !(error instanceof ApiError)) return;
        setState((known) => ({ ...known, fault: error.message }));
        if (error.status === 0 || error.status >= 500) again(awayMs);
      },
    );
    return () => {
      latest.current += 1;
      clearTimeout(timer);
    };
  }, [path, round, everyMs]);
  return {
    data: state.path === path ? state.data : undefined,
    fault: state.fault,
    reload: () => setRound((count) => count + 1),
  };
}
