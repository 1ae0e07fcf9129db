// What the console knows about the administration's commands, which src/admin/commands defines: the types of their answers and, put into
// the bundle by the build, who may run which command, and what the audit log calls it.

import type { AdministrationAnswers } from '../contract/administration-answers.js';
import type { Role } from '../contract/roles.js';

/** An answer of a command, by the command's name. */
export type Answer<Name extends keyof AdministrationAnswers> = AdministrationAnswers[Name];
export type Right = keyof AdministrationAnswers;
export type Person = Answer<'listPeople'>[number];
export type Account = Answer<'listAccounts'>[number];
export type EnvironmentOfList = Account['environments'][number];
export type Deletion = Answer<'showDeletion'>;
export type FoundRows = NonNullable<Deletion['found']>[number];

declare const administration: {
  readonly rights: Readonly<Record<string, readonly Role[]>>;
  readonly actions: Readonly<Record<string, string>>;
};

export function mayDo(role: Role, command: Right): boolean {
  return administration.rights[command]?.includes(role) ?? false;
}

/** An action of the audit log in words; its name if this console does not know it yet. */
export function actionText(action: string): string {
  const { actions } = administration;
  return Object.hasOwn(actions, action) ? (actions[action] ?? '') : action.replaceAll('_', ' ');
}

/** All actions with their words, in the order of the words. */
export function actionsInWords(): readonly (readonly [action: string, words: string])[] {
  return Object.entries(administration.actions).toSorted(([, a], [, b]) => a.localeCompare(b));
}
