// What people have put into a long form and not sent. It outlives the end of their session, so that nobody pastes a list twice.
// It is only in the memory of the open page, and whoever signs in as somebody else does not find it.

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

/** Forgets the fields whose names begin so: of a form that was sent or given up, or of all. */
export function forgetDrafts(names = ''): void {
  for (const name of drafts.keys()) if (name.startsWith(names)) drafts.delete(name);
}

let owner: string | undefined;
effect(() => {
  const { value } = person;
  if (value == null || value.person_id === owner) return;
  owner = value.person_id;
  forgetDrafts();
});
