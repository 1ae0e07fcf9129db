// Who is signed in, and the accounts of theirs, as the administration shows them.

export type Person = {
  readonly person_id: string;
  readonly email: string;
  readonly role: 'operator' | 'administrator' | 'privacy' | 'viewer';
  readonly account_id: string | null;
  readonly created_at: string;
  readonly state: 'invited' | 'active';
  /** Whether the provider of single sign-on vouches for them, instead of a password. */
  readonly signs_on: boolean;
  readonly second_factor: boolean;
  readonly invited_until: string | null;
};

export type EnvironmentOfList = { readonly app_id: string; readonly name: string; readonly main: boolean };

export type Account = {
  readonly account_id: string;
  readonly name: string;
  readonly environments: readonly EnvironmentOfList[];
  /** Whether the demo is about it. */
  readonly demo?: boolean;
};
