// Turns the snippet's stand-in into the library, also with methods that an older snippet lacks. The object stays the same, so code
// that holds it has the library, too. Then the waiting calls are made, in their order.

import { createGuard } from '../core/guard.js';
import { type Window, warnIn } from './browser.js';
import { connect, type Sluice } from './sluice.js';
import { methods, type WaitingCall } from './snippet.js';

type Stub = { -readonly [Name in keyof Sluice]?: Sluice[Name] } & {
  calls?: readonly WaitingCall[] | { readonly length: 0; push(call: unknown): void };
  /** How many calls the snippet dropped because it keeps no more. */
  lost?: number;
  /** Set once the library is in place, so that a script that is loaded twice changes nothing. */
  installed?: true;
};

export function install(window: Window): void {
  try {
    const stub: Stub = Object(window.sluice ?? {});
    if (stub.installed) return;
    window.sluice = stub;
    const calls: unknown[] = Array.isArray(stub.calls) ? stub.calls : [];
    const { sluice, at, addLost } = connect(window);
    const described = Object.getOwnPropertyDescriptors(sluice);
    // These inherit nothing, since a page may have given every object a getter.
    for (const descriptor of Object.values(described)) Object.setPrototypeOf(descriptor, null);
    Object.defineProperties(stub, described);
    stub.installed = true;
    // Code may have kept a method of the snippet, which goes on adding calls.
    stub.calls = { length: 0, push: (call) => replay(sluice, call, at) };
    for (const call of calls) replay(sluice, call, at);
    addLost(Number(stub.lost) || 0);
  } catch {
    const { warn } = createGuard(warnIn(window));
    warn('it cannot replace `sluice`.');
  }
}

function replay(sluice: Sluice, call: unknown, at: (ms: unknown, call: () => void) => void): void {
  if (!Array.isArray(call)) return;
  const [name, args, atMs] = call;
  const method = methods.filter((known) => known === name)[0];
  if (method === undefined) return;
  const operation = sluice[method] as (...args: readonly unknown[]) => unknown;
  at(atMs, () => void operation(...(Array.isArray(args) ? args : [])));
}
