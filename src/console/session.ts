// Who is signed in, and on which page and account. The only state that pages share.

import { computed, effect, signal } from '@preact/signals';
import { mayDo, type Right } from '../contract/roles.js';
import type { Account, Person } from './person.js';

/** `undefined` until the service was asked; `null`: nobody is signed in. */
export const person = signal<Person | null | undefined>(undefined);

/** Whether people may come from a provider. */
export const singleSignOn = signal(false);

/** Why the sign-in is shown, if there is something to say. */
export const notice = signal('');

export const accounts = signal<readonly Account[]>([]);
const chosenId = signal(readChoice());

/** The account that pages are about. */
export const account = computed(
  () => accounts.value.find(({ account_id }) => account_id === chosenId.value) ?? accounts.value[0],
);

/** The app_id that the last page was about. The next one is about it, too, if it is of the account. */
export const chosenEnvironment = signal('');

export function chooseAccount(id: string): void {
  chosenId.value = id;
}

/** Whether the person may give a command; what they may not do is not shown. */
export function may(command: Right): boolean {
  const { value } = person;
  return value != null && mayDo(value.role, command);
}

export function sessionHasEnded(): void {
  if (person.value != null) notice.value = 'Your session has ended. Sign in again.';
  person.value = null;
}

const choiceName = 'sluice-console-account';

/** The storage may be denied; then the choice lasts as long as the page. */
function readChoice(): string {
  try {
    return localStorage.getItem(choiceName) ?? '';
  } catch (error) {
    return onlyDenied(error, '');
  }
}

effect(() => {
  try {
    if (chosenId.value !== '') localStorage.setItem(choiceName, chosenId.value);
  } catch (error) {
    onlyDenied(error, undefined);
  }
});

function onlyDenied<Value>(error: unknown, value: Value): Value {
  if (error instanceof DOMException) return value;
  throw error;
}
