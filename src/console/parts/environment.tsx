// Which environment of the account a page is about.

import type { Account, EnvironmentOfList } from '../api.js';
import { chosenEnvironment } from '../session.js';
import { Choice } from './fields.js';

/** The environment that was chosen last on any page, initially the main one, and the field that chooses it. */
export function useEnvironment(account: Account) {
  const first = account.environments.find(({ main }) => main) ?? account.environments[0];
  const environment: EnvironmentOfList | undefined =
    account.environments.find(({ app_id }) => app_id === chosenEnvironment.value) ?? first;
  const field =
    account.environments.length > 1 ? (
      <Choice
        label="Environment"
        value={environment?.app_id ?? ''}
        set={(appId) => {
          chosenEnvironment.value = appId;
        }}
        options={account.environments.map(({ app_id, name }) => [app_id, name] as const)}
      />
    ) : null;
  return { environment, field };
}
