// A new deletion: a list of users, what would be found of them, and its submission, in several requests if it is long.

import { useState } from 'preact/hooks';
import { counts } from '../../contract/lengths.js';
import { type Account, ApiError, call, type FoundRows, part } from '../api.js';
import { forgetDrafts, useDraft } from '../parts/draft.js';
import { Act, Check, Choice, Dialog, Field, Form, Table } from '../parts/parts.js';
import { readUserList, type UserKind, type UserList } from '../parts/user-list.js';
import { RowsByTable } from './deletion-evidence.js';

/** What a request may name at most; longer lists are several requests. */
const perRequestMax = counts.deletionTargetsMax;

type Unclear = {
  readonly place: number;
  readonly found: boolean;
  readonly rows: number;
  readonly similar: number;
};
type Preview = {
  readonly users: number;
  readonly users_found: number;
  readonly found: readonly FoundRows[];
  readonly unclear: readonly Unclear[];
};
type Previewed = { readonly of: string; readonly parts: readonly Preview[] };

type FormProps = { readonly account: Account; readonly close: () => void };

export function NewDeletion({ account, close: closeForm }: FormProps) {
  const form = `${account.account_id} deletion`;
  const [text, setText] = useDraft(`${form} text`, '');
  const [kind, setKind] = useDraft<UserKind>(`${form} kind`, 'identity');
  const [reference, setReference] = useDraft(`${form} reference`, '');
  const [suppress, setSuppress] = useDraft(`${form} suppress`, false);
  const [submitted, setSubmitted] = useDraft<number | undefined>(`${form} submitted`, undefined);
  const [previewed, setPreviewed] = useState<Previewed | undefined>(undefined);
  const [lookedUp, setLookedUp] = useState<number | undefined>(undefined);
  const [done, setDone] = useState(false);
  const close = () => {
    forgetDrafts(form);
    closeForm();
  };
  const list = readUserList(text, kind);
  const path = `/accounts/${part(account.account_id)}/user_deletion`;
  const requests = Math.max(1, Math.ceil(list.users.length / perRequestMax));
  const count = list.users.length.toLocaleString();
  const users = list.users.length === 1 ? 'user' : 'users';
  const submit = async () => {
    let from = submitted ?? 0;
    while (from < list.users.length) {
      setSubmitted(from);
      const some = list.users.slice(from, from + perRequestMax);
      const number = from / perRequestMax + 1;
      const body = {
        users: some,
        ...(suppress ? { suppress } : {}),
        ...(reference.trim() === '' ? {} : { reference: referenceOf(reference.trim(), number, requests) }),
      };
      await untilTaken(() => call('POST', path, body));
      from += some.length;
      setSubmitted(from);
    }
    setDone(true);
  };
  const preview = async () => {
    const parts: Preview[] = [];
    try {
      for (let from = 0; from < list.users.length; from += perRequestMax) {
        setLookedUp(from);
        const some = list.users.slice(from, from + perRequestMax);
        const found = await call<Preview>('POST', path, { users: some, dry_run: true });
        const unclear = found.unclear.map((each) => ({ ...each, place: each.place + from }));
        parts.push({ ...found, unclear });
      }
    } finally {
      setLookedUp(undefined);
    }
    setPreviewed({ of: `${kind} ${text}`, parts });
  };
  const upload = async (file: File | undefined) => {
    if (file !== undefined) setText(await file.text());
  };
  if (done) {
    return (
      <Dialog title="Submitted" close={close}>
        <p role="status">
          The deletion of {count} {users} is submitted. The list shows when it is complete.
        </p>
        <button type="button" class="primary" onClick={close}>
          Close
        </button>
      </Dialog>
    );
  }
  return (
    <Dialog title={`Delete users of ${account.name}`} close={close}>
      <p>
        All records of these users are deleted, in every environment of the account. This cannot be undone.{' '}
        {suppress
          ? 'What arrives of them later is not stored, until somebody frees them.'
          : 'What arrives of them after the submission stays.'}
      </p>
      <Form label="New deletion" submit={`Delete ${count} ${users}`} danger cancel={close} work={submit}>
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
          label="Users, one per line"
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
          {count} {users} to delete
          {list.repeated > 0 && `, ${list.repeated.toLocaleString()} named twice`}
          {requests > 1 && `, in ${requests} requests`}.
        </p>
        <BadLines list={list} />
        <Act button="Preview" disabled={list.users.length === 0} work={preview} />
        {lookedUp !== undefined && requests > 1 && (
          <progress aria-label="Previewed" max={list.users.length} value={lookedUp} />
        )}
        {previewed?.of === `${kind} ${text}` && (
          <Found parts={previewed.parts} list={list} kind={kind} account={account} />
        )}
        <Field
          label="Reference"
          value={reference}
          set={setReference}
          hint="Your own name for the request, such as a ticket. It is kept, so it must not name a user."
        />
        <Check
          label="Suppress these users, too"
          value={suppress}
          set={setSuppress}
          hint="Suppressed first, so that nothing sent about them later is stored."
        />
        {submitted !== undefined && (
          <progress aria-label="Submitted" max={list.users.length} value={submitted} />
        )}
      </Form>
    </Dialog>
  );
}

/** A reference names one request. */
function referenceOf(reference: string, number: number, requests: number): string {
  return requests === 1 ? reference : `${reference} (${number} of ${requests})`;
}

function BadLines({ list: { bad } }: { readonly list: UserList }) {
  if (bad.length === 0) return null;
  return (
    <p class="problem">
      {bad.length.toLocaleString()} {bad.length === 1 ? 'line is' : 'lines are'} left out, since{' '}
      {bad.length === 1 ? 'it names' : 'they name'} no user:{' '}
      {bad
        .slice(0, 5)
        .map(({ line, text }) => `${line}: ${text.slice(0, 40)}`)
        .join('; ')}
      {bad.length > 5 && ' …'}
    </p>
  );
}

/** What a deletion of the list would find now. */
function Found(props: {
  readonly parts: readonly Preview[];
  readonly list: UserList;
  readonly kind: UserKind;
  readonly account: Account;
}) {
  const { parts, list, kind, account } = props;
  const usersFound = parts.reduce((sum, { users_found }) => sum + users_found, 0);
  const unclear = parts.flatMap((each) => each.unclear);
  const missing = list.users.length - usersFound;
  return (
    <div class="found">
      <p role="status">
        {usersFound.toLocaleString()} found, {missing.toLocaleString()} not found
        {unclear.some(({ similar }) => similar > 0) && '; some look like others that are not on the list'}.
      </p>
      <RowsByTable found={parts.flatMap(({ found }) => found)} account={account} />
      {unclear.length > 0 && (
        <Table
          caption="Users to look at again"
          rows={unclear}
          keyOf={({ place }) => String(place)}
          empty=""
          columns={[
            { title: 'User', text: ({ place }) => list.users[place]?.[kind] ?? '' },
            {
              title: 'Rows',
              text: ({ found, rows }) => (found ? rows.toLocaleString() : 'not found'),
              number: true,
            },
            {
              title: 'Similar',
              text: ({ similar }) => (similar === 0 ? '' : `${similar} in another case or with blanks`),
            },
          ]}
        />
      )}
    </div>
  );
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
