// A line of the audit log, as Redis keeps it and ClickHouse stores it.

export type Actor = {
  readonly kind: 'admin_token' | 'command_line' | 'api_key' | 'program_key' | 'person';
  /** Who has it: the first digits of the token's hash, the user on the machine, the key's id, or the e-mail address. Never a secret. */
  readonly name: string;
  /** The address of the caller, or the name of the machine. */
  readonly address: string;
};

/** The ids that an action is about, as far as they are known. */
export type Subjects = Partial<
  Readonly<Record<'account_id' | 'app_id' | 'key_id' | 'deletion_request_id', string>>
>;

/** `begun`: it has not ended, or how it ended is unknown. `refused`: nothing was changed. `unknown`: it failed, perhaps after a change. */
export type AuditOutcome = 'begun' | 'done' | 'refused' | 'unknown';

/** An action has a line of stage 0 when it begins and one of stage 1 when it ends, with the same id. Unknown texts are empty. */
export type AuditLine = Required<Subjects> & {
  /** When the action began, in UTC: `2026-03-01 12:30:00.250`. */
  readonly at: string;
  readonly id: string;
  readonly stage: 0 | 1;
  readonly actor: Actor['kind'];
  readonly actor_name: string;
  readonly address: string;
  readonly action: string;
  /** A JSON object. */
  readonly details: string;
  readonly outcome: AuditOutcome;
};

/** Replaces lone surrogates: for one of them ClickHouse would refuse all lines of the insert, again and again. */
export function rowOfLine(line: AuditLine): object {
  return Object.fromEntries(
    Object.entries(line).map(([name, value]) => [
      name,
      typeof value === 'string' ? value.toWellFormed() : value,
    ]),
  );
}
