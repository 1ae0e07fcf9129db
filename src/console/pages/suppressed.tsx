// The suppressed users of an account: how many there are, when and why users were suppressed or freed, and forms that suppress or free a
// list. The names are stored as hashes, so they cannot be listed.

import { useState } from 'preact/hooks';
import { counts } from '../../contract/lengths.js';
import { type Account, call, part } from '../api.js';
import { useCase } from '../parts/case.js';
import { Dialog } from '../parts/dialog.js';
import { forgetDrafts, useDraft } from '../parts/draft.js';
import { Field } from '../parts/fields.js';
import { Button, Form } from '../parts/form.js';
import { amountText, Help, Loaded } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { ListFields, Sending, useListOfUsers } from '../parts/user-list-form.js';
import { AuditLines } from './audit-lines.js';

export function Suppressed({ account }: { readonly account: Account }) {
  const path = `/accounts/${part(account.account_id)}/user_suppression`;
  const found = useResource<'showSuppressed'>(path);
  const open = useDraft<'' | 'suppress' | 'lift'>(`${account.account_id} suppression`, '');
  const [changes, setChanges] = useState(0);
  return (
    <section class="card" aria-label="Suppressed users">
      <div class="head">
        <h2>Suppressed users</h2>
        <div class="buttons">
          <Button text="Suppress a list" act={() => open.set('suppress')} />
          <Button text="Lift a list" act={() => open.set('lift')} />
        </div>
      </div>
      <Help page="src/privacy/suppression/README.md" about="suppression">
        Nothing that is sent about a suppressed user is stored. Their names are not kept: find a user above to
        see whether they are suppressed, and since when.
      </Help>
      <Loaded from={found}>
        {({ users, records }) => (
          <p>
            {users === 0 ? 'Nobody is suppressed.' : `${amountText(users, 'user')} suppressed.`}{' '}
            {records > 0 &&
              `${amountText(records, 'record was', 'records were')} about suppressed users not stored.`}
          </p>
        )}
      </Loaded>
      <AuditLines
        key={changes}
        of={{ account_id: account.account_id, action: 'suppress_users,free_users' }}
        caption="What was suppressed and lifted"
        file="suppressions"
        empty="Nothing was suppressed or lifted yet. Deletions that suppress their users, too, are under Deletions."
      />
      {open.value !== '' && (
        <ByList
          account={account}
          path={path}
          isLifted={open.value === 'lift'}
          close={() => {
            open.set('');
            setChanges(changes + 1);
            found.reload();
          }}
        />
      )}
    </section>
  );
}

function ByList(props: {
  readonly account: Account;
  readonly path: string;
  readonly isLifted: boolean;
  readonly close: () => void;
}) {
  const { account, path, isLifted, close } = props;
  const form = `${account.account_id} suppression ${isLifted}`;
  const users = useListOfUsers(form, counts.exportUsersMax);
  const reference = useDraft(`${form} reference`, '');
  const { inCase, field } = useCase(account);
  const left = amountText(users.list.users.length - (users.sent ?? 0), 'user');
  const forget = () => {
    forgetDrafts(form);
    close();
  };
  const submit = async (signal: AbortSignal) => {
    const given = { suppress: !isLifted, reference: reference.value.trim() || undefined, ...inCase };
    const isDone = await users.send(signal, (some) => call('POST', path, { users: some, ...given }));
    if (isDone) forget();
  };
  return (
    <Dialog
      title={isLifted ? 'Lift the suppression of users' : `Suppress users of ${account.name}`}
      close={close}
    >
      <p>
        {isLifted
          ? 'From now on, what is sent about these users is stored again, in every environment of the account. Who is not suppressed stays as they are.'
          : 'From now on, nothing that is sent about these users is stored, in every environment of the account. What is already stored stays. The senders are not told.'}
      </p>
      <Form
        label={isLifted ? 'Lift a list' : 'Suppress a list'}
        submit={isLifted ? `Store again what is sent about ${left}` : `Suppress ${left}`}
        danger
        stops
        cannot={users.cannot}
        cancel={forget}
        work={submit}
      >
        <ListFields of={users} to={isLifted ? 'store again' : 'suppress'} />
        <Field
          label="Why"
          {...reference}
          hint="A reference of your own, such as a ticket. It is kept, so it must not name a user."
          more={{ maxLength: 255 }}
        />
        {field}
        <Sending of={users} what={isLifted ? 'Lifted' : 'Suppressed'} />
      </Form>
    </Dialog>
  );
}
