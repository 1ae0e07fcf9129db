// Exports of an account: downloads of what is held about users.

import { counts } from '../../contract/lengths.js';
import { type Account, call, part } from '../api.js';
import { useCase } from '../parts/case.js';
import { Dialog } from '../parts/dialog.js';
import { forgetDrafts, useDraft } from '../parts/draft.js';
import { Choice, useField } from '../parts/fields.js';
import { Button, Form } from '../parts/form.js';
import { amountText, Help } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { LoadedTable } from '../parts/table.js';
import { ListFields, PreviewOf, Sending, useListOfUsers } from '../parts/user-list-form.js';
import { may } from '../session.js';

const everyMs = 3_000;
/** The reader's time zone. */
const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const zones = [...new Set([ownZone, 'UTC', ...Intl.supportedValuesOf('timeZone')])];
/** How many exports the service lists. */
const listedMax = 20;

function pathOf({ account_id }: Account): string {
  return `/accounts/${part(account_id)}/user_exports`;
}

export function Exports({ account }: { readonly account: Account }) {
  const exports = useResource<'listExports'>(pathOf(account), everyMs);
  const form = `${account.account_id} export`;
  const adding = useDraft(form, false);
  const zone = useField(ownZone);
  return (
    <section class="card">
      <div class="head">
        <h2>Exports</h2>
        <Button text="New export" act={() => adding.set(true)} />
      </div>
      <Help page="src/privacy/export/README.md" about="exports">
        An export is a download of all that is held about users. It is kept for a day, or until one of them is
        deleted.
      </Help>
      {exports.data?.some(({ status }) => status === 'complete') && (
        <Choice
          label="Times in the zone of"
          {...zone}
          options={zones.map((name) => [name, name.replaceAll('_', ' ')] as const)}
          hint="Of the person who gets the download."
        />
      )}
      <LoadedTable
        from={exports}
        caption="Exports"
        keyOf={({ user_export_id }) => user_export_id}
        empty="There is no export now."
        columns={[
          { title: 'Requested', time: (each) => each.submitted_at },
          { title: 'Users', text: (each) => each.users, number: true },
          {
            title: 'State',
            text: ({ status }) => (status === 'complete' ? 'ready' : 'waits for records that came before it'),
            chip: ({ status }) => (status === 'complete' ? 'good' : 'warn'),
          },
          { title: 'Kept until', time: (each) => each.ends_at },
        ]}
        actions={(each) =>
          each.status === 'complete' && (
            <a
              class="button small"
              href={`/admin/v1/user_exports/${part(each.user_export_id)}/data?format=zip&zone=${part(zone.value)}`}
              download={`export-${each.user_export_id}.zip`}
            >
              Download
            </a>
          )
        }
      />
      {adding.value && (
        <NewExport
          account={account}
          form={form}
          close={() => {
            adding.set(false);
            exports.reload();
          }}
        />
      )}
    </section>
  );
}

function NewExport(props: { readonly account: Account; readonly form: string; readonly close: () => void }) {
  const { account, form, close } = props;
  const users = useListOfUsers(form, counts.exportUsersMax);
  const { list, sent = 0, requests } = users;
  const { inCase, field } = useCase(account);
  const forget = () => {
    forgetDrafts(form);
    close();
  };
  const submit = async (signal: AbortSignal) => {
    const path = pathOf(account);
    const isDone = await users.send(signal, (some) => call('POST', path, { users: some, ...inCase }));
    if (isDone) forget();
  };
  return (
    <Dialog title="New export" close={close}>
      <p>
        Everything that is held about these users, in every environment of the account: as pages to read, as
        CSV, and as lines of JSON. To give it to a person, name only this person.
      </p>
      <Form
        label="New export"
        submit={sent > 0 ? `Export the other ${amountText(list.users.length - sent, 'user')}` : 'Export'}
        stops
        cannot={users.cannot}
        cancel={forget}
        work={submit}
      >
        <ListFields of={users} to="export" />
        {requests > listedMax && (
          <p class="problem">
            An export has at most {amountText(counts.exportUsersMax, 'user')}, and the list shows the last{' '}
            {listedMax} exports: download the first ones before you request more.
          </p>
        )}
        {field}
        {may('submitDeletion') && <PreviewOf of={users} account={account} inCase={inCase} />}
        <Sending of={users} what="Requested" />
      </Form>
    </Dialog>
  );
}
