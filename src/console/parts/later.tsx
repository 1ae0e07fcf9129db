// Pages with their own scripts, which are loaded when the pages are first opened: the first page may have at most 80 kB of script.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { goAway } from './draft.js';
import { Problem } from './parts.js';

const retryMs = 3_000;
/** The page is reloaded at most once in this time. */
const reloadAfterMs = 10_000;

/** Shows what a module exports, once it is loaded. `load` imports it; the browser then keeps it. */
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
      // Browsers do not request a script again that failed, and a new version has scripts with other names. So the whole page is reloaded
      // once the service answers.
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
  /** Loads the module in advance. If that fails, the page that needs it reports it. */
  const ahead = () => void get().catch(() => undefined);
  return { Later, ahead };
}
