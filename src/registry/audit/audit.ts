// The audit log: who did what to which account, environment, key or deletion request, when and from where. A line is written before its
// action begins, so nothing is done without one. A second line says how the action ended. Lines wait in Redis until a worker, or the
// process that copies the action's change, moves them to ClickHouse (outbox.ts). They name no users.

import { randomUUID } from 'node:crypto';
import { type ClickHouseClient, insertRows } from '../../clickhouse/client.js';
import type { AuditAction } from '../../contract/audit-actions.js';
import { AdministrationError, Busy, StateNotLoaded, Unavailable } from '../../contract/errors.js';
import { audit } from '../../contract/limits.js';
import type { Log } from '../../log.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';

export type Action = Subjects & {
  readonly action: AuditAction;
  readonly details: Readonly<Record<string, unknown>>;
};

/** What is only known at the end of an action. */
export type Ending = Subjects & { readonly outcome: AuditOutcome; readonly details?: Action['details'] };

/** Too many lines are waiting for ClickHouse: nothing was done. */
export class AuditLogFull extends Unavailable {
  override readonly toCallers = 'Nothing was stored: the audit log is full.';

  constructor() {
    super('the audit log waits for ClickHouse and is full: try again when ClickHouse is back');
  }
}

export type AuditOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly log: Log;
};

/**
 * Runs `work` with a line in the audit log before and after it; settles as `work` does. The last line is made from the result by
 * `endingOf` (by default: done), or from the error by `outcomeOfError` (by default: refused if the error shows that nothing was done).
 * Rejects with AuditLogFull or StateNotLoaded before `work` begins if the first line cannot be written. `loadsState`: the action may begin
 * while Redis is empty; its line goes to ClickHouse at once. `isKeptByLine`: the last line itself is the effect of the action, so this
 * rejects if it cannot be written.
 */
export async function audited<Result>(
  { redis, clickhouse, log }: AuditOptions,
  actor: Actor,
  action: Action,
  work: () => Promise<Result>,
  options: {
    readonly endingOf?: (result: Result) => Ending;
    readonly outcomeOfError?: (error: unknown) => AuditOutcome;
    readonly loadsState?: boolean;
    readonly isKeptByLine?: boolean;
  } = {},
): Promise<Result> {
  const begun = lineOf(actor, action);
  const kept = await keep(redis, begun, audit.waitingLinesMax);
  if (kept === 'full') throw new AuditLogFull();
  if (kept === 'not_loaded') {
    if (options.loadsState !== true) throw new StateNotLoaded();
    // ClickHouse may have lost its tables too; then the last line is the only one.
    await insertRows(clickhouse, 'audit_log', [rowOfLine(begun)]).catch((error: unknown) =>
      log.warn({ action: action.action, error }, 'the beginning of a load was not audited'),
    );
  }
  const end = async ({ outcome, details, ...subjects }: Ending) => {
    const merged = JSON.stringify({ ...action.details, ...details });
    const line: AuditLine = { ...begun, ...subjects, details: merged, stage: 1, outcome };
    const kept = keep(redis, line, 0);
    if (options.isKeptByLine === true && outcome === 'done') {
      if ((await kept) === 'not_loaded') throw new StateNotLoaded();
      return;
    }
    // The first line exists. Losing the result, such as a key that is shown only once, would be worse than losing the second line.
    await kept.catch((error: unknown) =>
      log.warn({ action: action.action, error }, 'the end of an action was not audited'),
    );
  };
  let result: Result;
  try {
    result = await work();
  } catch (error) {
    await end({ outcome: (options.outcomeOfError ?? outcomeByDefault)(error) });
    throw error;
  }
  await end(options.endingOf?.(result) ?? { outcome: 'done' });
  return result;
}

function outcomeByDefault(error: unknown): AuditOutcome {
  // A lack of room and the like may end a later step of an action, after earlier ones were done.
  return [AdministrationError, StateNotLoaded, Busy].some((kind) => error instanceof kind)
    ? 'refused'
    : 'unknown';
}

function lineOf(actor: Actor, { action, details, ...subjects }: Action): AuditLine {
  const { account_id = '', app_id = '', key_id = '', deletion_request_id = '' } = subjects;
  return {
    at: new Date().toISOString().replace('T', ' ').replace('Z', ''),
    id: randomUUID(),
    stage: 0,
    actor: actor.kind,
    actor_name: actor.name,
    address: actor.address,
    action,
    account_id,
    app_id,
    key_id,
    deletion_request_id,
    details: JSON.stringify(details),
    outcome: 'begun',
  };
}

async function keep(
  redis: Redis,
  line: AuditLine,
  linesMax: number,
): Promise<'kept' | 'full' | 'not_loaded'> {
  const { epoch, audit: lines, auditByAccount, uncopied } = registryKeys;
  const args = [`${line.id} ${line.stage} ${line.account_id}`, JSON.stringify(line), linesMax];
  const reply = await runScript(redis, scripts.addAuditLine, [epoch, lines, auditByAccount, uncopied], args);
  if (Number(reply) === -2) return 'not_loaded';
  return Number(reply) === 0 ? 'full' : 'kept';
}

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
