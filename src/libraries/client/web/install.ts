// Turns the snippet's stub into the library, including methods that an older snippet lacks. The object stays the same, so code that holds
// it has the library too. Then the waiting calls are made, in order.

import { createGuard } from '../core/guard.js';
import { type Window, warnIn } from './browser.js';
import { connect, type Sluice } from './sluice.js';
import { methods, type WaitingCall } from './snippet.js';

type Stub = { -readonly [Name in keyof Sluice]?: Sluice[Name] } & {
  calls?: readonly WaitingCall[] | { readonly length: 0; push(call: unknown): void };
  /** How many calls the snippet dropped because its limit was reached. */
  lost?: number;
  /** Set once the library is installed, so that loading the script twice changes nothing. */
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
    // These inherit nothing, since a page may have added a getter to every object.
    for (const descriptor of Object.values(described)) Object.setPrototypeOf(descriptor, null);
    Object.defineProperties(stub, described);
    stub.installed = true;
    // Code may have stored a method of the snippet, which would go on adding calls.
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
