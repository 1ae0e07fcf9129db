// Deletions and exports of an account: what was asked for and how far it is.

import { useState } from 'preact/hooks';
import { type Account, type Deletion, part } from '../api.js';
import { useDraft } from '../parts/draft.js';
import { durationText, Loaded, Table, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { may } from '../session.js';
import { Evidence } from './deletion-evidence.js';
import { Exports } from './exports.js';
import { NewDeletion } from './new-deletion.js';

const everyMs = 2_000;

const states: Readonly<Record<string, string>> = {
  submitted: 'submitted',
  waiting_for_backlog: 'waits for records that came before it',
  deleting: 'deletes',
  verifying: 'counts what is left',
  complete: 'complete',
  targets_lost: 'lost its list: submit it again',
  ended: 'ended without being carried out',
  clickhouse_unavailable: 'waits for ClickHouse',
  mutation_failed: 'tries again',
  failed: 'tries again',
};

export function Deletions({ account }: { readonly account: Account }) {
  const deletions = useResource<Deletion[]>(`/deletions?account_id=${part(account.account_id)}`, everyMs);
  const [adding, setAdding] = useDraft(`${account.account_id} deletion`, false);
  const [shown, setShown] = useState<Deletion | undefined>(undefined);
  return (
    <>
      <div class="head">
        <h1>Deletions</h1>
        {may('submitDeletion') && (
          <button type="button" class="primary" onClick={() => setAdding(true)}>
            New deletion
          </button>
        )}
      </div>
      <section class="card">
        <h2>The last deletions</h2>
        <Loaded from={deletions}>
          {(data) => (
            <Table
              caption="Deletions"
              rows={data}
              keyOf={({ deletion_request_id }) => deletion_request_id}
              empty={
                may('submitDeletion')
                  ? 'Nobody was deleted yet. Begin with New deletion, or by the deletion API with an API key.'
                  : 'Nobody was deleted yet.'
              }
              columns={[
                {
                  title: 'Submitted',
                  text: (each) => each.submitted_at,
                  cell: (each) => <Time at={each.submitted_at} />,
                },
                { title: 'Users', text: (each) => each.targets.toLocaleString(), number: true },
                {
                  title: 'State',
                  text: (each) => states[each.state] ?? each.state,
                  cell: (each) => (
                    <span class={`chip ${each.status === 'complete' ? 'good' : 'warn'}`}>
                      {states[each.state] ?? each.state}
                    </span>
                  ),
                },
                {
                  title: 'Complete',
                  text: (each) => each.completed_at ?? '',
                  cell: (each) =>
                    each.completed_at === undefined ? (
                      <span class="muted">
                        submitted {durationText((Date.now() - Date.parse(each.submitted_at)) / 1000)} ago
                      </span>
                    ) : (
                      <Time at={each.completed_at} />
                    ),
                },
                {
                  title: 'Rows found',
                  number: true,
                  text: (each) =>
                    each.found === undefined
                      ? ''
                      : each.found.reduce((sum, { rows }) => sum + rows, 0).toLocaleString(),
                },
                { title: 'Reference', text: (each) => each.reference ?? '' },
                {
                  title: 'Request',
                  text: (each) => each.deletion_request_id,
                  cell: (each) => (
                    <code title={each.deletion_request_id}>{each.deletion_request_id.slice(0, 8)}</code>
                  ),
                },
              ]}
              actions={(each) => (
                <button
                  type="button"
                  class="small"
                  aria-label={`Evidence of ${each.deletion_request_id.slice(0, 8)}`}
                  onClick={() => setShown(each)}
                >
                  Evidence
                </button>
              )}
            />
          )}
        </Loaded>
      </section>
      {may('listExports') && <Exports account={account} />}
      {shown !== undefined && (
        <Evidence deletion={shown} account={account} close={() => setShown(undefined)} />
      )}
      {adding && (
        <NewDeletion
          account={account}
          close={() => {
            setAdding(false);
            deletions.reload();
          }}
        />
      )}
    </>
  );
}
