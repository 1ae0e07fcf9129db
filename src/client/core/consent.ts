// The visitor's choice for an app. Kept in storage and, where there is one, in a second place, and remembered by the
// page, for pages empty their storage at a logout: who has opted out stays so. Each choice has a number, so that the
// latest one is known wherever it was found.

import type { KeyValueStorage, TextStore } from './adapters.js';

export type Choice = 'in' | 'out';

export type Consent = {
  /** Undefined when nobody has chosen. */
  choice(): Choice | undefined;
  choose(choice: Choice): void;
};

/** A cookie that somebody else wrote may have the last number of all: a longer one would not be read. */
const numberMax = 1e15 - 1;

type Numbered = { readonly choice: Choice; readonly number: number };

export function createConsent(
  storage: KeyValueStorage,
  key: string,
  appId: string,
  second: TextStore | undefined,
): Consent {
  let knownText: string | undefined;
  let known: Numbered | undefined;
  /** Whether the storage took it; else other tabs' choices are only in the second place. */
  let isStored = true;

  function look(): Numbered | undefined {
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
    // Other tabs would go by the former choice, and the next page.
    if (!isStored) {
      storage.remove(key);
      isStored = storage.set(key, knownText);
    }
    if (second !== undefined && second.read(appId) !== knownText) second.write(appId, knownText);
  }

  return {
    choice: () => look()?.choice,
    choose: (choice) => keep({ choice, number: Math.min((look()?.number ?? 0) + 1, numberMax) }),
  };
}

/** Of two that tabs made at once, which have the same number, the one that records less. */
function later(one: Numbered | undefined, other: Numbered | undefined): Numbered | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  if (one.number === other.number) return one.choice === 'out' ? one : other;
  return one.number > other.number ? one : other;
}

function textOf({ choice, number }: Numbered): string {
  return `${choice} ${number}`;
}

/** A text without a number is of an older version of the library. */
function parse(text: string | undefined): Numbered | undefined {
  const [, choice, number] = /^(in|out)(?: (\d{1,15}))?$/.exec(text ?? '') ?? [];
  return choice === undefined ? undefined : { choice: choice as Choice, number: Number(number ?? 0) };
}
