// What people have entered in a long form and not sent yet. It is kept in the memory of the open page only. It outlives the
// session, so that nobody has to paste a list twice, and is forgotten when somebody else signs in.

import { effect, type Signal, signal } from '@preact/signals';
import { person } from '../session.js';

const drafts = new Map<string, Signal>();

/** The value of a field, and how to set it. Names begin with the id of the account that the form is about. */
export function useDraft<Value>(name: string, first: Value): readonly [Value, (value: Value) => void] {
  const draft = (drafts.get(name) ?? signal(first)) as Signal<Value>;
  drafts.set(name, draft);
  return [
    draft.value,
    (value) => {
      draft.value = value;
    },
  ];
}

/** Forgets the fields of a form that was sent or given up: their names begin with `prefix`. Without one it forgets all. */
export function forgetDrafts(prefix = ''): void {
  for (const name of drafts.keys()) if (name.startsWith(prefix)) drafts.delete(name);
}

let owner: string | undefined;
effect(() => {
  const { value } = person;
  if (value == null || value.person_id === owner) return;
  owner = value.person_id;
  forgetDrafts();
});
