// The case to which an action belongs: the one that was chosen last, on this page or another one.

import type { Account, Answer } from '../api.js';
import { part } from '../api.js';
import { chosenCase, may } from '../session.js';
import { Choice } from './fields.js';
import { dayText } from './parts.js';
import { useResource } from './resource.js';

export type Case = Answer<'showCase'>;

/** A case is marked when it is due within this many days. */
export const soonDays = 7;

/** The field that chooses a case; absent while no case is open. `inCase`: the fields that name the case in a request. */
export function useCase(account: Account) {
  const path = `/accounts/${part(account.account_id)}/cases`;
  const { data: open = [] } = useResource<'listCases'>(may('listCases') ? path : undefined);
  const chosen = open.find(({ case_id }) => case_id === chosenCase.value);
  const field =
    open.length === 0 ? null : (
      <Choice
        label="In the case"
        value={chosen?.case_id ?? ''}
        set={(id) => {
          chosenCase.value = id;
        }}
        options={[
          ['', 'none'],
          ...open.map(
            ({ case_id, reference, due_on }) => [case_id, `${reference}, due ${dayText(due_on)}`] as const,
          ),
        ]}
        hint="The case then says that it was done."
      />
    );
  return { inCase: chosen === undefined ? {} : { case_id: chosen.case_id }, field };
}
