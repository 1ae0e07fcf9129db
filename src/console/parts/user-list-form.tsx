// What forms about a list of users share: the field for the list, pasted or from a file; the preview of what would be found; and
// sending it, in several requests if it is long.

import { useMemo, useState } from 'preact/hooks';
import { counts } from '../../contract/lengths.js';
import { type Account, ApiError, call, type FoundRows, part } from '../api.js';
import { may } from '../session.js';
import { useDraft } from './draft.js';
import { Choice, Field } from './fields.js';
import { ActionButton } from './form.js';
import { RowsByTable } from './rows-by-table.js';
import { Table } from './table.js';
import { readUserList, type UserKind, type UserList } from './user-list.js';

type Users = UserList['users'];

/** How many users were sent, and of which list: a changed list begins anew. */
type Sent = { readonly of: string; readonly users: number };

/** The list of a form, in requests of at most `perRequestMax` users. Its fields are drafts under the form's name. */
export function useListOfUsers(form: string, perRequestMax: number) {
  const [text, setText] = useDraft(`${form} text`, '');
  const [kind, setKind] = useDraft<UserKind>(`${form} kind`, 'identity');
  const [sent, setSent] = useDraft<Sent | undefined>(`${form} sent`, undefined);
  const list = useMemo(() => readUserList(text, kind), [text, kind]);
  const name = `${kind} ${text}`;
  const all = list.users.length;
  /** Sends what is not sent yet, request by request, until all of it is taken or the reader stops it. */
  const send = async (signal: AbortSignal, one: (users: Users, number: number) => Promise<unknown>) => {
    let from = sent?.of === name ? sent.users : 0;
    while (from < all && !signal.aborted) {
      const some = list.users.slice(from, from + perRequestMax);
      const isTaken = await untilTaken(signal, () => one(some, from / perRequestMax + 1));
      if (!isTaken) break;
      from += some.length;
      setSent({ of: name, users: from });
    }
    return from === all;
  };
  return {
    /** A changed list has another name. */
    name,
    text,
    setText,
    kind,
    setKind,
    list,
    requests: Math.max(1, Math.ceil(all / perRequestMax)),
    /** How many users of this list are sent; undefined before the first ones are. */
    sent: sent?.of === name ? sent.users : undefined,
    send,
  };
}

type ListOfUsers = ReturnType<typeof useListOfUsers>;

/** `1 user`, or `2,000 users`. */
export function usersText(count: number): string {
  return `${count.toLocaleString()} ${count === 1 ? 'user' : 'users'}`;
}

/** The fields for the list, and how many users it has. */
export function ListFields({ of, to }: { readonly of: ListOfUsers; readonly to: string }) {
  const { text, setText, kind, setKind, list, requests } = of;
  const upload = async (file: File | undefined) => {
    if (file !== undefined) setText(await file.text());
  };
  return (
    <>
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
        set={setText}
        lines={8}
        hint="CSV needs a first line that names the column: identity, email, user_id or anonymous_id."
        required
      />
      <div class="field">
        <label for="list-file">Or a file (CSV or text)</label>
        <input
          id="list-file"
          type="file"
          accept=".csv,.txt,text/csv,text/plain"
          onChange={(event) => void upload(event.currentTarget.files?.[0])}
        />
      </div>
      <p class="preview" role="status">
        {usersText(list.users.length)} to {to}
        {list.repeated > 0 && `, ${list.repeated.toLocaleString()} named twice`}
        {requests > 1 && `, in ${requests.toLocaleString()} requests`}.
      </p>
      <BadLines list={list} />
    </>
  );
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

/** How much of the list is sent, once some of it is. */
export function Sending({ of, what }: { readonly of: ListOfUsers; readonly what: string }) {
  const { sent, list } = of;
  if (sent === undefined) return null;
  const all = list.users.length;
  return (
    <p role="status">
      <progress aria-label={what} max={all} value={sent} />
      {sent < all && `${sent.toLocaleString()} of ${usersText(all)} are submitted.`}
    </p>
  );
}

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

const perPreviewMax = counts.deletionTargetsMax;

/** A button that asks what is held now about the users of the list, and the answer. */
export function PreviewOf({ of, account }: { readonly of: ListOfUsers; readonly account: Account }) {
  const { list, name, kind } = of;
  const [previewed, setPreviewed] = useState<Previewed | undefined>(undefined);
  const [lookedUp, setLookedUp] = useState<number | undefined>(undefined);
  const all = list.users.length;
  const preview = async (signal: AbortSignal) => {
    const parts: Preview[] = [];
    try {
      for (let from = 0; from < all && !signal.aborted; from += perPreviewMax) {
        setLookedUp(from);
        const some = list.users.slice(from, from + perPreviewMax);
        const path = `/accounts/${part(account.account_id)}/user_deletion`;
        const found = await call<Preview>('POST', path, { users: some, dry_run: true });
        const unclear = found.unclear.map((each) => ({ ...each, place: each.place + from }));
        parts.push({ ...found, unclear });
      }
    } finally {
      setLookedUp(undefined);
    }
    setPreviewed({ of: name, parts });
  };
  return (
    <>
      <ActionButton button="Preview" disabled={all === 0} work={preview} />
      {lookedUp !== undefined && all > perPreviewMax && (
        <progress aria-label="Previewed" max={all} value={lookedUp} />
      )}
      {previewed?.of === name && <Found parts={previewed.parts} list={list} kind={kind} account={account} />}
    </>
  );
}

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
  const nameOf = ({ place }: Unclear) => list.users[place]?.[kind] ?? '';
  return (
    <div class="found">
      <p role="status">
        {usersFound.toLocaleString()} found, {missing.toLocaleString()} not found
        {unclear.some(({ similar }) => similar > 0) && '; some look like others who are not on the list'}.
      </p>
      <RowsByTable found={parts.flatMap(({ found }) => found)} account={account} />
      {unclear.length > 0 && (
        <Table
          caption="Users to look at again"
          rows={unclear}
          first={50}
          keyOf={({ place }) => String(place)}
          empty=""
          columns={[
            { title: 'User', text: nameOf },
            { title: 'Rows', text: ({ found, rows }) => (found ? rows : 'not found'), number: true },
            {
              title: 'Similar',
              text: ({ similar }) => (similar === 0 ? '' : `${similar} in another case or with blanks`),
            },
          ]}
          {...(unclear.some(({ similar }) => similar > 0) && may('findSimilarUsers')
            ? {
                actions: (each: Unclear) =>
                  each.similar > 0 && <Similar account={account} identity={nameOf(each)} />,
              }
            : {})}
        />
      )}
    </div>
  );
}

/** Which identities are similar to one, in all environments of the account. */
function Similar({ account, identity }: { readonly account: Account; readonly identity: string }) {
  const [found, setFound] = useState<readonly string[] | undefined>(undefined);
  if (found !== undefined)
    return (
      <ul class="others" aria-label={`Similar to ${identity}`}>
        {found.map((other) => (
          // Blanks may be the only difference, so they are shown.
          <li key={other}>
            <code class="exact">{other}</code>
          </li>
        ))}
      </ul>
    );
  const look = async () => {
    const answers = await Promise.all(
      account.environments.map(({ app_id }) =>
        call<{ similar: readonly string[] }>('POST', `/environments/${part(app_id)}/user/similar`, {
          identity,
        }),
      ),
    );
    setFound([...new Set(answers.flatMap(({ similar }) => similar))]);
  };
  return <ActionButton button="Which?" label={`Which are similar to ${identity}?`} small work={look} />;
}

const triesMax = 20;

/**
 * Submits again while the service is busy or has no room, so that nobody has to find out where a long list broke off. Settles with
 * false if the reader stops it first.
 */
async function untilTaken(signal: AbortSignal, submit: () => Promise<unknown>): Promise<boolean> {
  for (let tried = 1; !signal.aborted; tried += 1) {
    try {
      await submit();
      return true;
    } catch (error) {
      const isPassing = error instanceof ApiError && (error.status === 429 || error.status === 503);
      if (!isPassing || tried === triesMax) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
  }
  return false;
}
