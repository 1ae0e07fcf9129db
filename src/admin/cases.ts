// What privacy officers do with cases. Every step is a line in the audit log, from which the case is read (privacy/cases/cases.ts).

import { randomUUID } from 'node:crypto';
import { settingsOf } from '../accounts/accounts.js';
import { AdministrationError } from '../contract/errors.js';
import { cases as bounds } from '../contract/limits.js';
import type { AdminContext } from '../operations/context.js';
import { readDay } from '../parsing/day-or-time.js';
import { type Case, readCases } from '../privacy/cases/cases.js';
import { copyChanges, kindsOfCopies } from '../registry/outbox.js';
import { accountOf } from './user-everywhere.js';

/** The cases of an account that are in a state: open ones by due date, closed ones from the latest. */
export async function listCasesOf(context: AdminContext, accountId: string, state: Case['state']) {
  await accountOf(context, accountId);
  return read(context, { accountId, state });
}

/** A case, with what was done in it. Throws AdministrationError if the account has no case with this id. */
export async function showCaseOf(context: AdminContext, accountId: string, caseId: string): Promise<Case> {
  await accountOf(context, accountId);
  return caseNamed(context, accountId, caseId);
}

export type CaseFields = {
  readonly reference?: string | undefined;
  readonly received_on?: string | undefined;
  readonly due_on?: string | undefined;
};

/** Makes a new case from its first fields, without storing it. Throws AdministrationError if the fields are not valid. */
export async function beginCase(context: AdminContext, accountId: string, given: CaseFields): Promise<Case> {
  const { account } = await accountOf(context, accountId);
  const reference = referenceOf(given.reference ?? '');
  const case_id = randomUUID();
  await checkOthers(context, accountId, { case_id, reference });
  const now = new Date().toISOString();
  const received_on = dayOf('received_on', given.received_on ?? now.slice(0, 10));
  const { due_days } = settingsOf(account);
  const due_on = dayOf('due_on', given.due_on ?? dayAfter(received_on, due_days));
  checkOrder(received_on, due_on);
  return {
    case_id,
    reference,
    received_on,
    due_on,
    opened_at: now,
    opened_by: '',
    state: 'open',
    done: {},
  };
}

export type CaseChange = CaseFields & {
  readonly state?: Case['state'] | undefined;
  readonly result?: string | undefined;
};

/** The case after a change, without storing it. Throws AdministrationError if the change does not fit the case. */
export async function caseAfterChange(
  context: AdminContext,
  accountId: string,
  caseId: string,
  { state, result, ...given }: CaseChange,
): Promise<Case> {
  const before = await showCaseOf(context, accountId, caseId);
  if (state !== undefined && state === before.state)
    throw new AdministrationError(`the case is already ${state}`);
  if (state === undefined && before.state === 'closed')
    throw new AdministrationError('the case is closed: open it again to change it');
  const after = {
    ...before,
    ...(given.reference === undefined ? {} : { reference: referenceOf(given.reference) }),
    ...(given.received_on === undefined ? {} : { received_on: dayOf('received_on', given.received_on) }),
    ...(given.due_on === undefined ? {} : { due_on: dayOf('due_on', given.due_on) }),
    ...(state === undefined ? {} : { state }),
    ...(result === undefined ? {} : { result }),
  };
  checkOrder(after.received_on, after.due_on);
  if (after.state === 'open' && (state !== undefined || after.reference !== before.reference))
    await checkOthers(context, accountId, after);
  return after;
}

/** Throws AdministrationError if the account has as many other open cases as it can have, or one of the same reference. */
async function checkOthers(
  context: AdminContext,
  accountId: string,
  { case_id, reference }: Pick<Case, 'case_id' | 'reference'>,
): Promise<void> {
  const open = await read(context, { accountId, state: 'open' });
  const others = open.filter((each) => each.case_id !== case_id);
  if (others.length >= bounds.openMax)
    throw new AdministrationError(`an account can have ${bounds.openMax} open cases: close one first`);
  if (others.some((each) => each.reference === reference))
    throw new AdministrationError('there is already an open case with this reference');
}

/** Throws AdministrationError unless the case is open. Without an id there is nothing to check. */
export async function checkOpenCase(
  context: Pick<AdminContext, 'redis' | 'clickhouse'>,
  accountId: string,
  caseId: string | undefined,
): Promise<void> {
  if (caseId === undefined) return;
  const { state } = await caseNamed(context, accountId, caseId);
  if (state === 'closed') throw new AdministrationError('the case is closed: open it again first');
}

async function caseNamed(
  context: Pick<AdminContext, 'redis' | 'clickhouse'>,
  accountId: string,
  caseId: string,
): Promise<Case> {
  const isId = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(caseId);
  const [found] = isId ? await read(context, { accountId, caseId }) : [];
  if (found === undefined) throw new AdministrationError(`there is no case ${caseId}`);
  return found;
}

async function read(
  { redis, clickhouse }: Pick<AdminContext, 'redis' | 'clickhouse'>,
  asked: Parameters<typeof readCases>[1],
): Promise<readonly Case[]> {
  // The latest lines of the audit log may still be only in Redis, such as that of a case that was just opened.
  await copyChanges(redis, clickhouse, { kind: kindsOfCopies.auditLine });
  return readCases(clickhouse, asked);
}

function referenceOf(text: string): string {
  const reference = text.trim();
  if (reference === '')
    throw new AdministrationError('a case needs a reference of your own, such as a ticket');
  return reference;
}

const dayMs = 24 * 60 * 60 * 1000;

function dayOf(name: string, text: string): string {
  if (readDay(text) === undefined) throw new AdministrationError(`${name} must be a day such as 2026-03-01`);
  return text;
}

function dayAfter(day: string, days: number): string {
  return new Date(Date.parse(day) + days * dayMs).toISOString().slice(0, 10);
}

function checkOrder(receivedOn: string, dueOn: string): void {
  if (dueOn < receivedOn) throw new AdministrationError('a case cannot be due before it was received');
}
