// Deletions that wait for a second privacy officer.

import { type Account, call, part } from '../api.js';
import { Confirm } from '../parts/dialog.js';
import { useResource } from '../parts/resource.js';
import { Table } from '../parts/table.js';

const everyMs = 5_000;

/** The proposals; shows nothing while there are none. */
export function Proposals({ account }: { readonly account: Account }) {
  const path = `/accounts/${part(account.account_id)}/deletion_proposals`;
  const proposals = useResource<'listProposals'>(path, everyMs);
  if (proposals.data === undefined || proposals.data.length === 0) return null;
  return (
    <section class="card">
      <h2>Waiting for a second privacy officer</h2>
      <p>
        To confirm one, another person than the one who proposed it submits the same list with New deletion:
        in any order, or in the same order if it was sent in several requests. No name is kept here, so the
        list has to come from whoever proposed it.
      </p>
      <Table
        caption="Proposed deletions"
        rows={proposals.data}
        keyOf={({ proposal_id }) => proposal_id}
        empty=""
        columns={[
          { title: 'Proposed', time: ({ proposed_at }) => proposed_at },
          { title: 'By', text: ({ proposed_by }) => proposed_by },
          { title: 'Users', text: ({ users }) => users, number: true },
          { title: 'And suppressed', text: ({ suppress }) => (suppress ? 'yes' : 'no') },
          { title: 'Reference', text: ({ reference = '' }) => reference },
          { title: 'Until', time: ({ ends_at }) => ends_at },
        ]}
        actions={({ proposal_id, proposed_by }) => (
          <Confirm
            button="Withdraw"
            of={`what ${proposed_by} proposed`}
            title="Withdraw this deletion?"
            says={<p>It is not carried out, whoever submits the list, until somebody proposes it again.</p>}
            confirm="Withdraw it"
            work={() => call('DELETE', `${path}/${part(proposal_id)}`).then(proposals.reload)}
          />
        )}
      />
    </section>
  );
}
