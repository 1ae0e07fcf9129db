// Commands: cases, which are requests that people make to an account.

import { cases as bounds, deletions } from '../../contract/limits.js';
import { privacyOfficers } from '../../contract/roles.js';
import { oneOf, optional, text } from '../../contract/typebox.js';
import { caseActions } from '../../privacy/cases/cases.js';
import { beginCase, caseAfterChange, listCasesOf, showCaseOf } from '../cases.js';
import { does, shows } from '../command.js';

const day = (description: string) => optional(text(description));
const reference = text('Your own name for it, such as a ticket. It is kept, so it must not name a user.', {
  maxLength: deletions.referenceMax,
});
const days = {
  received_on: day('A day such as 2026-03-01. Default: today, in UTC.'),
  due_on: day("Default: received_on plus the account's due_days."),
};
const states = ['open', 'closed'] as const;

export const caseCommands = {
  listCases: shows({
    summary: 'Cases: open ones by the day when they are due, closed ones the latest first',
    may: privacyOfficers,
    http: 'GET /accounts/:account_id/cases',
    given: { state: optional(oneOf(states, 'Default: open.')) },
    takesTurns: true,
    run: (context, { account_id, state = 'open' }) => listCasesOf(context, account_id, state),
  }),
  showCase: shows({
    summary: 'A case; the audit log has its lines by `case_id`',
    may: privacyOfficers,
    http: 'GET /accounts/:account_id/cases/:case_id',
    takesTurns: true,
    run: (context, { account_id, case_id }) => showCaseOf(context, account_id, case_id),
  }),
  openCase: does(
    { [caseActions.open]: 'opened a case' },
    {
      summary: 'Open a case',
      may: privacyOfficers,
      http: 'POST /accounts/:account_id/cases',
      given: { reference, ...days },
      takesTurns: true,
      isKeptByLine: true,
      detailsOfResult: ({ case_id, reference, received_on, due_on }) => ({
        case_id,
        reference,
        received_on,
        due_on,
      }),
      run: async (context, { account_id, ...given }) => ({
        ...(await beginCase(context, account_id, given)),
        opened_by: context.caller,
      }),
    },
  ),
  changeCase: does(
    {
      [caseActions.change]: 'changed a case',
      [caseActions.close]: 'closed a case',
      [caseActions.reopen]: 'opened a case again',
    },
    {
      summary: 'Change a case, close it, or open it again',
      may: privacyOfficers,
      http: 'PATCH /accounts/:account_id/cases/:case_id',
      given: {
        reference: optional(reference),
        ...days,
        state: optional(oneOf(states)),
        result: optional(
          text('What became of it. It is kept, so it must not name a user.', { maxLength: bounds.resultMax }),
        ),
      },
      takesTurns: true,
      isKeptByLine: true,
      action: ({ state }) =>
        state === undefined
          ? caseActions.change
          : state === 'closed'
            ? caseActions.close
            : caseActions.reopen,
      // Only the fields that it sets, so that two changes at once do not overwrite each other.
      details: ({ account_id: _, state: __, reference, ...fields }) => ({
        ...fields,
        ...(reference !== undefined && { reference: reference.trim() }),
      }),
      run: async (context, { account_id, case_id, ...change }) =>
        caseAfterChange(context, account_id, case_id, change),
    },
  ),
};
