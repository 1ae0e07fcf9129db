// People and accounts, as the administration answers with them.

export type Person = {
  readonly person_id: string;
  readonly email: string;
  readonly role: 'operator' | 'administrator' | 'privacy' | 'viewer';
  readonly account_id: string | null;
  readonly created_at: string;
  readonly state: 'invited' | 'active';
  /** Whether they sign in through the provider of single sign-on instead of with a password. */
  readonly signs_on: boolean;
  readonly second_factor: boolean;
  readonly invited_until: string | null;
};

export type EnvironmentOfList = { readonly app_id: string; readonly name: string; readonly main: boolean };

export type Account = {
  readonly account_id: string;
  readonly name: string;
  readonly environments: readonly EnvironmentOfList[];
  /** Whether it is the account of the demo. */
  readonly demo?: boolean;
};
