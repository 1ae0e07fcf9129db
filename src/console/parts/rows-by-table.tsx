// Found rows, by environment and kind.

import type { Account, FoundRows } from '../api.js';
import { Table } from './table.js';

export function RowsByTable({
  found,
  account,
}: {
  readonly found: readonly FoundRows[];
  readonly account: Pick<Account, 'environments'>;
}) {
  const sums = new Map<string, number>();
  const nameOf = new Map(account.environments.map(({ app_id, name }) => [app_id, name]));
  for (const { app_id, table, rows } of found) {
    const key = `${nameOf.get(app_id) ?? app_id}\n${kindOf[table] ?? table}`;
    sums.set(key, (sums.get(key) ?? 0) + rows);
  }
  return (
    <Table
      caption="Records by environment"
      rows={[...sums]}
      keyOf={([key]) => key}
      empty="No records were found."
      columns={[
        { title: 'Environment', text: ([key]) => key.split('\n')[0] ?? '' },
        { title: 'What', text: ([key]) => key.split('\n')[1] ?? '' },
        { title: 'Records', text: ([, rows]) => rows, number: true },
      ]}
    />
  );
}

/** The kinds of records, by their tables. */
export const kindOf: Readonly<Record<string, string>> = {
  stored_events: 'events',
  stored_user_properties: 'user properties',
  stored_user_identities: 'identifications',
  failed_events: 'records set aside',
};
