// What people have entered in a long form but not sent yet. It is kept in the memory of the open page and, while the tab is at the single
// sign-on provider or the page is being reloaded, in the tab's storage. It outlives the session, so that nobody has to paste a list twice,
// and is forgotten when somebody else signs in.

import { effect, type Signal, signal } from '@preact/signals';
import { go, path } from '../router.js';
import { onlyDenied, person } from '../session.js';
import type { FieldState } from './fields.js';

const drafts = new Map<string, Signal>();

/** Like `useField`, for a field whose value is kept. Its name begins with the id of the account that the form is about. */
export function useDraft<Value>(name: string, first: Value): FieldState<Value> {
  const draft = (drafts.get(name) ?? signal(first)) as Signal<Value>;
  drafts.set(name, draft);
  return {
    value: draft.value,
    set: (value) => {
      draft.value = value;
    },
  };
}

/** Forgets the fields of a form that was sent or given up: those whose names begin with `prefix`. Without a prefix, forgets all. */
export function forgetDrafts(prefix = ''): void {
  for (const name of drafts.keys()) if (name.startsWith(prefix)) drafts.delete(name);
}

let owner: string | undefined;
effect(() => {
  const { value } = person;
  if (value == null || value.person_id === owner) return;
  owner = value.person_id;
  forgetDrafts();
  comeBack(owner);
});

const awayName = 'sluice-console-away';
type Away = { readonly path: string; readonly owner?: string; readonly drafts: readonly [string, unknown][] };

/**
 * Called before the browser leaves for the single sign-on provider, or reloads the page. The tab's storage keeps the open page and its
 * fields until the browser is back; if there is no room for the fields, only the page.
 */
export function goAway(): void {
  // After a failed sign-on this page has nothing to keep, and what was kept before is still needed.
  if (owner === undefined && path.value === '/') return;
  const away: Away = {
    path: `${path.value}${location.hash}`,
    ...(owner === undefined ? {} : { owner }),
    drafts: [],
  };
  const entered = [...drafts].map(([name, draft]) => [name, draft.value] as [string, unknown]);
  for (const kept of [{ ...away, drafts: entered }, away])
    try {
      return sessionStorage.setItem(awayName, JSON.stringify(kept));
    } catch (error) {
      onlyDenied(error, undefined);
    }
}

/** Opens the kept page for anybody, but restores the fields only for the person who entered them. */
function comeBack(personId: string): void {
  try {
    const text = sessionStorage.getItem(awayName);
    sessionStorage.removeItem(awayName);
    if (text === null) return;
    const away = JSON.parse(text) as Away;
    if (away.owner === personId) for (const [name, value] of away.drafts) drafts.set(name, signal(value));
    go(away.path);
  } catch (error) {
    onlyDenied(error, undefined);
  }
}
