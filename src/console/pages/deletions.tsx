// Deletions of an account: what was asked for and how far it is, and new ones from a list of users.

import { useState } from 'preact/hooks';
import { type Account, ApiError, call, part } from '../api.js';
import { Choice, Dialog, Field, Form, Loaded, Table, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { readUserList, type UserKind } from '../parts/user-list.js';
import { account as chosen, may } from '../session.js';

type Deletion = {
  readonly deletion_request_id: string;
  readonly submitted_at: string;
  readonly completed_at?: string;
  readonly targets: number;
  readonly status: 'pending' | 'complete';
  readonly state: string;
  readonly found?: readonly { readonly app_id: string; readonly table: string; readonly rows: number }[];
};

/** What a request may name at most; longer lists are several requests. */
const perRequestMax = 10_000;
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
  const [adding, setAdding] = useState(false);
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
                { title: 'Users', text: (each) => each.targets.toLocaleString() },
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
                      <span class="muted">–</span>
                    ) : (
                      <Time at={each.completed_at} />
                    ),
                },
                {
                  title: 'Rows found',
                  text: (each) =>
                    each.found === undefined
                      ? ''
                      : each.found.reduce((sum, { rows }) => sum + rows, 0).toLocaleString(),
                },
                {
                  title: 'Request',
                  text: (each) => each.deletion_request_id,
                  cell: (each) => (
                    <code title={each.deletion_request_id}>{each.deletion_request_id.slice(0, 8)}</code>
                  ),
                },
              ]}
            />
          )}
        </Loaded>
      </section>
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

function NewDeletion({ account, close }: { readonly account: Account; readonly close: () => void }) {
  const [text, setText] = useState('');
  const [kind, setKind] = useState<UserKind>('identity');
  const [submitted, setSubmitted] = useState<number | undefined>(undefined);
  const [done, setDone] = useState(false);
  const list = readUserList(text, kind);
  const submit = async () => {
    let from = submitted ?? 0;
    while (from < list.users.length) {
      setSubmitted(from);
      const users = list.users.slice(from, from + perRequestMax);
      await untilTaken(() => call('POST', `/accounts/${part(account.account_id)}/user_deletion`, { users }));
      from += users.length;
      setSubmitted(from);
    }
    setDone(true);
  };
  const upload = async (file: File | undefined) => {
    if (file !== undefined) setText(await file.text());
  };
  if (done) {
    return (
      <Dialog title="Submitted" close={close}>
        <p role="status">
          The deletion of {list.users.length.toLocaleString()} {list.users.length === 1 ? 'user' : 'users'} is
          submitted. The list shows when it is complete.
        </p>
        <button type="button" class="primary" onClick={close}>
          Close
        </button>
      </Dialog>
    );
  }
  return (
    <Dialog title={`Delete users of ${chosen.value?.name ?? ''}`} close={close}>
      <p>
        All records of these users are deleted, in every environment of the account. This cannot be undone.
        What arrives of them after the submission stays.
      </p>
      <Form label="New deletion" submit={deleteButton(list.users.length)} danger cancel={close} work={submit}>
        <Choice
          label="The list has"
          value={kind}
          set={setKind}
          options={[
            ['identity', 'identities, such as e-mail addresses'],
            ['user_id', 'user ids (numbers)'],
            ['anonymous_id', 'anonymous ids of Segment’s libraries'],
          ]}
        />
        <Field
          label="Users, one a line"
          value={text}
          set={(value) => {
            setText(value);
            setSubmitted(undefined);
          }}
          lines={8}
          hint="CSV needs a first line that names the column: identity, email, user_id or anonymous_id."
          required
        />
        <div class="field">
          <label for="deletion-file">Or a file (CSV or text)</label>
          <input
            id="deletion-file"
            type="file"
            accept=".csv,.txt,text/csv,text/plain"
            onChange={(event) => void upload(event.currentTarget.files?.[0])}
          />
        </div>
        <p class="preview" role="status">
          {list.users.length.toLocaleString()} {list.users.length === 1 ? 'user' : 'users'} to delete
          {list.repeated > 0 && `, ${list.repeated.toLocaleString()} named twice`}
          {list.users.length > perRequestMax &&
            `, in ${Math.ceil(list.users.length / perRequestMax)} requests`}
          .
        </p>
        {list.bad.length > 0 && (
          <p class="problem">
            {list.bad.length.toLocaleString()} {list.bad.length === 1 ? 'line is' : 'lines are'} left out,
            since {list.bad.length === 1 ? 'it names' : 'they name'} no user:{' '}
            {list.bad
              .slice(0, 5)
              .map(({ line, text: bad }) => `${line}: ${bad.slice(0, 40)}`)
              .join('; ')}
            {list.bad.length > 5 && ' …'}
          </p>
        )}
        {submitted !== undefined && (
          <progress aria-label="Submitted" max={list.users.length} value={submitted} />
        )}
      </Form>
    </Dialog>
  );
}

function deleteButton(count: number): string {
  return count === 1 ? 'Delete 1 user' : `Delete ${count.toLocaleString()} users`;
}

/** A service that is away or busy is asked again: nobody should have to find out where a long list broke off. */
async function untilTaken(submit: () => Promise<unknown>): Promise<void> {
  const tries = 20;
  for (let tried = 1; ; tried += 1) {
    try {
      await submit();
      return;
    } catch (error) {
      const isPassing = error instanceof ApiError && (error.status === 429 || error.status === 503);
      if (!isPassing || tried === tries) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
  }
}
