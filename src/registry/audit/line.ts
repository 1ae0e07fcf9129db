// A line of the audit log, as Redis keeps it and ClickHouse stores it.

export type Actor = {
  /** The kind of access: ADMIN_TOKEN, a shell on the machine, an API key, a program's key, or a person's session of the console. */
  readonly kind: 'admin_token' | 'command_line' | 'api_key' | 'program_key' | 'person';
  /** Whose access it is: the first digits of the token's hash, the user of the machine, the key, or the e-mail address. Never a secret. */
  readonly name: string;
  /** The address of the caller, or the name of the machine. */
  readonly address: string;
};

/** What an action is about, as far as it is known. */
export type Subjects = Partial<
  Readonly<Record<'account_id' | 'app_id' | 'key_id' | 'deletion_request_id', string>>
>;

/** `begun`: how it ended is unknown. `refused`: nothing was changed. `unknown`: it failed, perhaps after a change. */
export type AuditOutcome = 'begun' | 'done' | 'refused' | 'unknown';

export type AuditLine = Required<Subjects> & {
  readonly at: string;
  readonly id: string;
  readonly stage: 0 | 1;
  readonly actor: Actor['kind'];
  readonly actor_name: string;
  readonly address: string;
  readonly action: string;
  readonly details: string;
  readonly outcome: AuditOutcome;
};
