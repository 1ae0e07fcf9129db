// Who is signed in, and which account and environment the pages are about; all state that pages share.

import { computed, effect, signal } from '@preact/signals';
import { type Account, mayDo, type Person, type Right } from './commands.js';

/** `undefined` until the service has answered; `null`: nobody is signed in. */
export const person = signal<Person | null | undefined>(undefined);

/** Whether people can sign in through a provider of single sign-on. */
export const singleSignOn = signal(false);

/** What the sign-in says above its form; for example, that the session has ended. */
export const notice = signal('');

export const accounts = signal<readonly Account[]>([]);
const chosenId = signal(readChoice());

/** The account that pages are about. */
export const account = computed(
  () => accounts.value.find(({ account_id }) => account_id === chosenId.value) ?? accounts.value[0],
);

/** The app_id that was chosen last. Pages start with it if it belongs to the chosen account. */
export const chosenEnvironment = signal('');

/** The id of the case that the person is working on. */
export const chosenCase = signal('');

export function chooseAccount(id: string): void {
  chosenId.value = id;
}

/** Whether the person may run a command. Pages do not offer commands that the person may not run. */
export function may(command: Right): boolean {
  const { value } = person;
  return value != null && mayDo(value.role, command);
}

export function sessionHasEnded(): void {
  if (person.value != null) notice.value = 'Your session has ended. Sign in again.';
  leave();
}

/** Shows how to set up a second factor, in place of the open page. */
export function secondFactorIsRequired(): void {
  const { value } = person;
  if (value != null) person.value = { ...value, second_factor: false, needs_second_factor: true };
}

/** Shows the sign-in, and forgets what the next person must not see. */
export function leave(): void {
  person.value = null;
  accounts.value = [];
  chosenCase.value = '';
}

const choiceName = 'sluice-console-account';

/** The stored choice. If the browser denies its storage, a choice lasts only as long as the page. */
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

/**
 * Returns the value if the error is a DOMException, which means that a browser denies something. Throws any other error, since it is a
 * fault of ours.
 */
export function onlyDenied<Value>(error: unknown, value: Value): Value {
  if (error instanceof DOMException) return value;
  throw error;
}
