// The JavaScript surface of a window. A page may have several copies of the library: the script and the package, or the package in two
// bundles. The first copy that is used serves the window, and the others pass their calls to it. Otherwise each copy would record every
// page view, and the calls of a copy on which nobody called `load` would never be sent.

import { createGuard } from '../core/guard.js';
import { type Window, warnIn } from './browser.js';
import { createOwn, type Own, surfaceOf } from './own.js';
import { type Method, methods } from './snippet.js';
import type { Sluice } from './surface.js';

export type { LoadOptions, Sluice, SluiceProperties } from './surface.js';

/** The window's property with the copy that serves it. Copies of other versions read it, so its form must not change. */
const servingKey = Symbol.for('sluice');

/** The surface for a window. Without a document, as on a server, it does nothing. */
export function createSluice(window: Window): Sluice {
  return connect(window).sluice;
}

/** The surface of a window, and what the snippet's calls need. */
export function connect(window: Window): Pick<Own, 'sluice' | 'at' | 'addLost'> {
  const { guarded } = createGuard(warnIn(window));
  const own = createOwn(window);

  /** Chosen at the first use, since importing the library must touch nothing. */
  function serving(): Own {
    const holder = window as { [servingKey]?: Own };
    try {
      if (window.document && !holder[servingKey]) Object.defineProperty(window, servingKey, { value: own });
    } catch {
      // The page has frozen its window, so each copy serves itself.
    }
    return holder[servingKey] ?? own;
  }

  function load(...args: Parameters<Sluice['load']>): void {
    const { sluice, appId, warn } = serving();
    const loaded = appId();
    if (loaded === undefined || sluice === own.sluice) return sluice.load(...args);
    if (loaded !== args[0]) warn(`load is ignored: this page already records for the app_id ${loaded}.`);
  }

  const operations = {} as Record<Method, (...args: never[]) => unknown>;
  for (const name of methods) {
    operations[name] = (...args) => (serving().sluice[name] as (...args: unknown[]) => unknown)(...args);
  }
  operations.load = load;

  return {
    sluice: surfaceOf(guarded, operations, () => serving().sluice),
    at: (ms, call) => serving().at(ms, call),
    addLost: (count) => serving().addLost(count),
  };
}
