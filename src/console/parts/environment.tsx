// Which environment of the account a page is about.

import { useState } from 'preact/hooks';
import type { Account, EnvironmentOfList } from '../api.js';
import { Choice } from './parts.js';

/** The chosen environment, the main one at first, and the field to choose it by. */
export function useEnvironment(account: Account) {
  const first = account.environments.find(({ main }) => main) ?? account.environments[0];
  const [appId, setAppId] = useState(first?.app_id ?? '');
  const environment: EnvironmentOfList | undefined =
    account.environments.find(({ app_id }) => app_id === appId) ?? first;
  const field =
    account.environments.length > 1 ? (
      <Choice
        label="Environment"
        value={environment?.app_id ?? ''}
        set={setAppId}
        options={account.environments.map(({ app_id, name }) => [app_id, name] as const)}
      />
    ) : null;
  return { environment, field };
}
