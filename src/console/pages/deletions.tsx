// Deletions and exports of an account: what was requested, and how far each request is.

import { useState } from 'preact/hooks';
import { type Account, call, type Deletion, withQuery } from '../api.js';
import { useDraft } from '../parts/draft.js';
import { Choice, Field, useField } from '../parts/fields.js';
import { Button, Form } from '../parts/form.js';
import { Pages, usePages } from '../parts/paged.js';
import { durationText, Help, Time } from '../parts/parts.js';
import { Table } from '../parts/table.js';
import { may } from '../session.js';
import { Evidence } from './deletion-evidence.js';
import { states, stateText, toneOf } from './deletion-words.js';
import { Exports } from './exports.js';
import { NewDeletion } from './new-deletion.js';
import { Proposals } from './proposals.js';

const everyMs = 2_000;

export function Deletions({ account }: { readonly account: Account }) {
  const state = useField('');
  const wanted = useField('');
  const [reference, setReference] = useState('');
  const of = { account_id: account.account_id, state: state.value, reference };
  const deletions = usePages(
    withQuery('', of),
    (cursor?: string) => call<'listDeletions'>('GET', withQuery('/deletions', { ...of, cursor })),
    ({ cursor }) => cursor,
    everyMs,
  );
  const adding = useDraft(`${account.account_id} deletion`, false);
  const [shown, setShown] = useState<Deletion | undefined>(undefined);
  return (
    <>
      <div class="head">
        <h1>Deletions</h1>
        {may('submitDeletion') && <Button text="New deletion" kind="primary" act={() => adding.set(true)} />}
      </div>
      {may('listProposals') && <Proposals account={account} />}
      <section class="card">
        <h2>Requests</h2>
        <Help page="src/privacy/deletion/README.md" about="deletions">
          A deletion is complete when every kind of record was counted and nothing of its users was left.
        </Help>
        <Form
          label="Find deletions"
          submit="Find"
          inline
          work={async () => setReference(wanted.value.trim())}
        >
          <Choice label="State" {...state} options={[['', 'any'], ...Object.entries(states)]} />
          <Field label="Reference" {...wanted} hint="Exactly as it was given. Empty: any." />
        </Form>
        <Pages from={deletions} button="Earlier deletions">
          {(pages) => (
            <Table
              caption="Deletions"
              copies
              rows={pages.flatMap((page) => page.deletions)}
              {...(pages.length === 1 ? { first: 20 } : {})}
              keyOf={({ deletion_request_id }) => deletion_request_id}
              empty={
                state.value !== '' || reference !== ''
                  ? 'No deletion on these pages matches.'
                  : may('submitDeletion')
                    ? 'Nobody was deleted yet. Begin with New deletion, or use the deletion API with an API key.'
                    : 'Nobody was deleted yet.'
              }
              columns={[
                { title: 'Submitted', time: (each) => each.submitted_at },
                { title: 'Users', text: (each) => each.targets, number: true },
                { title: 'State', text: stateText, chip: toneOf },
                {
                  title: 'Complete',
                  text: (each) => each.completed_at ?? '',
                  cell: (each) =>
                    each.completed_at === undefined ? (
                      <span class="muted">
                        not yet, after {durationText((Date.now() - Date.parse(each.submitted_at)) / 1000)}
                      </span>
                    ) : (
                      <Time at={each.completed_at} />
                    ),
                },
                {
                  title: 'Records found',
                  number: true,
                  text: (each) =>
                    each.found === undefined ? '' : each.found.reduce((sum, { rows }) => sum + rows, 0),
                },
                { title: 'Reference', text: (each) => each.reference ?? '' },
                {
                  title: 'Request',
                  text: (each) => each.deletion_request_id,
                  isCopiedOnly: true,
                },
              ]}
              actions={(each) => (
                <Button
                  kind="small"
                  text="Evidence"
                  label={`Evidence of ${each.deletion_request_id.slice(0, 8)}`}
                  act={() => setShown(each)}
                />
              )}
            />
          )}
        </Pages>
      </section>
      {may('listExports') && <Exports account={account} />}
      {shown !== undefined && (
        <Evidence deletion={shown} account={account} close={() => setShown(undefined)} />
      )}
      {adding.value && (
        <NewDeletion
          account={account}
          close={() => {
            adding.set(false);
            deletions.reload();
          }}
        />
      )}
    </>
  );
}
