// Cases: requests that people make to the account, by the day when the answer is due.

import { useState } from 'preact/hooks';
import { type Account, call, part } from '../api.js';
import type { Case } from '../parts/case.js';
import { Dialog } from '../parts/dialog.js';
import { Choice, Field, useField } from '../parts/fields.js';
import { Button, Form } from '../parts/form.js';
import { dayText, today } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { LoadedTable } from '../parts/table.js';
import { callerText } from '../words.js';
import { CaseFile } from './case-file.js';
import { Due, doneText } from './case-words.js';

const everyMs = 10_000;
export function Cases({ account }: { readonly account: Account }) {
  const path = `/accounts/${part(account.account_id)}/cases`;
  const state = useField<Case['state']>('open');
  const cases = useResource<'listCases'>(`${path}?state=${state.value}`, everyMs);
  const [isAdding, setIsAdding] = useState(false);
  const [shown, setShown] = useState<string | undefined>(undefined);
  return (
    <>
      <div class="head">
        <h1>Cases</h1>
        <Button text="New case" kind="primary" act={() => setIsAdding(true)} />
      </div>
      <section class="card">
        <div class="head">
          <h2>{state.value === 'open' ? 'By the day when they are due' : 'The latest first'}</h2>
          <Choice
            label="Show"
            {...state}
            options={[
              ['open', 'open cases'],
              ['closed', 'closed cases'],
            ]}
          />
        </div>
        <LoadedTable
          from={cases}
          caption="Cases"
          copies
          first={50}
          keyOf={({ case_id }) => case_id}
          empty={
            state.value === 'closed'
              ? 'No case is closed yet.'
              : 'No case is open. When a person asks what you hold about them, or to be deleted, open a case: it says by when an answer is due, and keeps what was done.'
          }
          columns={[
            { title: 'Reference', text: ({ reference }) => reference },
            {
              title: 'Received',
              text: ({ received_on }) => received_on,
              cell: ({ received_on }) => <time>{dayText(received_on)}</time>,
            },
            { title: 'Due', text: ({ due_on }) => due_on, cell: (each) => <Due of={each} /> },
            { title: 'Done', text: doneText },
            state.value === 'open'
              ? { title: 'Opened by', text: ({ opened_by }) => callerText(opened_by) }
              : { title: 'Closed', time: ({ closed_at }) => closed_at, to: 'day' },
          ]}
          actions={({ case_id, reference }) => (
            <Button
              kind="small"
              text="Show"
              label={`Show the case ${reference}`}
              act={() => setShown(case_id)}
            />
          )}
        />
      </section>
      {isAdding && (
        <NewCase
          account={account}
          close={() => {
            setIsAdding(false);
            cases.reload();
          }}
        />
      )}
      {shown !== undefined && (
        <CaseFile
          account={account}
          id={shown}
          close={() => {
            setShown(undefined);
            cases.reload();
          }}
        />
      )}
    </>
  );
}

function NewCase({ account, close }: { readonly account: Account; readonly close: () => void }) {
  const reference = useField('');
  const received = useField(today());
  const days = account.settings.due_days;
  return (
    <Dialog title={`New case of ${account.name}`} close={close}>
      <p>
        A case keeps when a request was received, by when an answer is due, and what was done, until it is
        closed. It keeps no name of a user.
      </p>
      <Form
        label="New case"
        submit="Open case"
        cancel={close}
        work={async () => {
          await call('POST', `/accounts/${part(account.account_id)}/cases`, {
            reference: reference.value,
            received_on: received.value,
          });
          close();
        }}
      >
        <Field
          label="Reference"
          {...reference}
          hint="Your own name for it, such as a ticket. It is kept, so it must not name a user."
          required
          more={{ maxLength: 255 }}
        />
        <Field
          label="Received on"
          type="date"
          {...received}
          hint={`An answer is due ${days} days later. An administrator sets how many; of one case you can change the day.`}
          required
        />
      </Form>
    </Dialog>
  );
}
