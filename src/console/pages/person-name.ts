// The names of a person who was looked up.

import type { Answer } from '../api.js';

export type FoundPerson = Answer<'lookUpUserEverywhere'>;
export type NameOfPerson = FoundPerson['names'][number];

/** A user as requests name them. */
export type Asked = Readonly<Record<string, string>>;

export function inRequest({ identity, user_id }: NameOfPerson): Asked {
  return identity === undefined ? { user_id: user_id ?? '' } : { identity };
}

export function nameText({ identity, user_id }: NameOfPerson): string {
  return identity ?? `user id ${user_id}`;
}
