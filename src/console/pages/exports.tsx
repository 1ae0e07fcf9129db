// Exports of an account: what is held about some users, to download.

import { counts } from '../../contract/lengths.js';
import { type Account, call, part } from '../api.js';
import { forgetDrafts, useDraft } from '../parts/draft.js';
import { Choice, Dialog, Field, Form, Loaded, Table, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { readUserList, type UserKind } from '../parts/user-list.js';

type Export = {
  readonly user_export_id: string;
  readonly submitted_at: string;
  readonly ends_at: string;
  readonly users: number;
  readonly status: 'pending' | 'complete';
};

const everyMs = 3_000;
const usersMax = counts.exportUsersMax;

export function Exports({ account }: { readonly account: Account }) {
  const path = `/accounts/${part(account.account_id)}/user_exports`;
  const exports = useResource<Export[]>(path, everyMs);
  const form = `${account.account_id} export`;
  const [adding, setAdding] = useDraft(form, false);
  return (
    <section class="card">
      <div class="head">
        <h2>Exports</h2>
        <button type="button" onClick={() => setAdding(true)}>
          New export
        </button>
      </div>
      <Loaded from={exports}>
        {(data) => (
          <Table
            caption="Exports"
            rows={data}
            keyOf={({ user_export_id }) => user_export_id}
            empty="No export is kept. Ask for one by New export: it is kept for a day, and ends when one of its users is deleted."
            columns={[
              {
                title: 'Asked for',
                text: (each) => each.submitted_at,
                cell: (each) => <Time at={each.submitted_at} />,
              },
              { title: 'Users', text: (each) => each.users.toLocaleString(), number: true },
              {
                title: 'State',
                text: (each) => each.status,
                cell: (each) => (
                  <span class={`chip ${each.status === 'complete' ? 'good' : 'warn'}`}>
                    {each.status === 'complete' ? 'ready' : 'waits for records that came before it'}
                  </span>
                ),
              },
              {
                title: 'Kept until',
                text: (each) => each.ends_at,
                cell: (each) => <Time at={each.ends_at} />,
              },
            ]}
            actions={(each) =>
              each.status === 'complete' && (
                <a
                  class="button small"
                  href={`/admin/v1/user_exports/${part(each.user_export_id)}/data`}
                  download={`export-${each.user_export_id}.ndjson`}
                >
                  Download
                </a>
              )
            }
          />
        )}
      </Loaded>
      {adding && (
        <NewExport
          path={path}
          form={form}
          close={() => {
            setAdding(false);
            forgetDrafts(form);
            exports.reload();
          }}
        />
      )}
    </section>
  );
}

function NewExport(props: { readonly path: string; readonly form: string; readonly close: () => void }) {
  const { path, form, close } = props;
  const [text, setText] = useDraft(`${form} text`, '');
  const [kind, setKind] = useDraft<UserKind>(`${form} kind`, 'identity');
  const { users, bad } = readUserList(text, kind);
  return (
    <Dialog title="New export" close={close}>
      <p>Everything that is held about these users, in every environment of the account, as lines of JSON.</p>
      <Form
        label="New export"
        submit="Export"
        cancel={close}
        work={async () => {
          await call('POST', path, { users });
          close();
        }}
      >
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
        <Field label="Users, one per line" value={text} set={setText} lines={5} required />
        <p role="status">
          {users.length.toLocaleString()} {users.length === 1 ? 'user' : 'users'}
          {bad.length > 0 && `, ${bad.length.toLocaleString()} lines name nobody`}
          {users.length > usersMax && `: an export takes ${usersMax.toLocaleString()} at most`}.
        </p>
      </Form>
    </Dialog>
  );
}
