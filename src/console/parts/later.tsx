// Pages whose scripts are files of their own, which come when they are first opened: the first page has room for 80 kB of script.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { goAway } from './draft.js';
import { Problem } from './parts.js';

const retryMs = 3_000;
/** No page is loaded again sooner. */
const reloadAfterMs = 10_000;

/** Shows what a module exports, once it is there. `load` imports it; the browser keeps what has come. */
export function later<Module extends object>(load: () => Promise<Module>) {
  let loaded: Module | undefined;
  const get = async () => {
    loaded ??= await load();
    return loaded;
  };
  function Later({ children }: { readonly children: (module: Module) => ComponentChildren }) {
    const [module, setModule] = useState(loaded);
    const [fault, setFault] = useState('');
    useEffect(() => {
      if (module !== undefined) return;
      let timer: ReturnType<typeof setTimeout> | undefined;
      let isWanted = true;
      // A browser does not ask again for a script that has failed, and a new version has scripts of other names. So the whole page
      // is loaded again, once there is somebody to answer.
      const recover = async () => {
        const isThere = await fetch('/console.js').then(
          ({ ok }) => ok,
          () => false,
        );
        if (!isWanted) return;
        if (!isThere || performance.now() < reloadAfterMs) timer = setTimeout(recover, retryMs);
        else {
          goAway();
          location.reload();
        }
      };
      get().then(
        (found) => isWanted && setModule(found),
        () => {
          if (!isWanted) return;
          setFault('The service does not answer.');
          void recover();
        },
      );
      return () => {
        isWanted = false;
        clearTimeout(timer);
      };
    }, []);
    if (module !== undefined) return <>{children(module)}</>;
    return fault === '' ? <p class="muted">Loading…</p> : <Problem text={fault} />;
  }
  /** Loads it ahead. If that fails, the page that needs it says so. */
  const ahead = () => void get().catch(() => undefined);
  return { Later, ahead };
}
