// The visitor's choice for an app. Pages empty their storage at a logout, and an opt-out must survive that, so the choice is kept in
// storage, in a second place if there is one, and in the page's memory. Choices are numbered, so that the latest one is recognised wherever
// it is found.

import type { KeyValueStorage, TextStore } from './adapters.js';

export type Choice = 'in' | 'out';

/** The highest number of a choice. `parse` accepts none that is longer, and anybody may have written a high one into the cookie. */
const numberMax = 1e15 - 1;

type Numbered = { readonly choice: Choice; readonly number: number };

export function createConsent(
  storage: KeyValueStorage,
  key: string,
  appId: string,
  second: TextStore | undefined,
) {
  let knownText: string | undefined;
  let known: Numbered | undefined;
  /** Whether the storage accepted the choice. If not, only the second place has the choices of other tabs. */
  let isStored = true;

  function readLatest(): Numbered | undefined {
    const text = storage.get(key);
    if (isStored && text !== undefined && text === knownText) return known;
    const latest = later(later(known, parse(text)), parse(second?.read(appId)));
    if (latest !== undefined) keep(latest);
    return known;
  }

  function keep(chosen: Numbered): void {
    known = chosen;
    knownText = textOf(chosen);
    if (!isStored || storage.get(key) !== knownText) isStored = storage.set(key, knownText);
    // At least the former choice must be removed, or other tabs and the next page would follow it.
    if (!isStored) {
      storage.remove(key);
      isStored = storage.set(key, knownText);
    }
    if (second !== undefined && second.read(appId) !== knownText) second.write(appId, knownText);
  }

  return {
    /** Undefined if the user has not chosen. */
    choice: () => readLatest()?.choice,
    choose: (choice: Choice): void =>
      keep({ choice, number: Math.min((readLatest()?.number ?? 0) + 1, numberMax) }),
  };
}

/** If two tabs chose at once, with the same number, the opt-out wins. */
function later(one: Numbered | undefined, other: Numbered | undefined): Numbered | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  if (one.number === other.number) return one.choice === 'out' ? one : other;
  return one.number > other.number ? one : other;
}

function textOf({ choice, number }: Numbered): string {
  return `${choice} ${number}`;
}

function parse(text: string | undefined): Numbered | undefined {
  const [, choice, number] = /^(in|out) (\d{1,15})$/.exec(text ?? '') ?? [];
  return choice === undefined ? undefined : { choice: choice as Choice, number: Number(number) };
}
