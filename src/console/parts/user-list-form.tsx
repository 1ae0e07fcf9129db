// What all forms that take a list of users share: the field for the list, pasted or from a file; the preview of what is held about the
// users; and sending the list, in several requests if it is long.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { counts } from '../../contract/lengths.js';
import {
  type ListChoices,
  readListFile,
  readUserList,
  type UserKind,
  type UserList,
} from '../../parsing/csv/user-list.js';
import { type Account, type Answer, ApiError, call, part } from '../api.js';
import { may } from '../session.js';
import { useDraft } from './draft.js';
import { Choice, Field, FileField, unreadable } from './fields.js';
import { ActionButton } from './form.js';
import { amountText, Problem } from './parts.js';
import { RowsByTable } from './rows-by-table.js';
import { Table } from './table.js';
import { useWork } from './work.js';

type Users = UserList['users'];

/** How many users were sent, and of which list. A changed list is sent from its beginning. */
type Sent = { readonly of: string; readonly users: number };
/** A person's choices, with the kind and first line of the list for which they were made. */
type Chosen = ListChoices & { readonly of: string };

/** The list of a form, divided into requests of at most `perRequestMax` users. The fields are drafts under the form's name. */
export function useListOfUsers(form: string, perRequestMax: number) {
  const text = useDraft(`${form} text`, '');
  const kind = useDraft<UserKind>(`${form} kind`, 'identity');
  const chosen = useDraft<Chosen>(`${form} choices`, { of: '' });
  const sending = useDraft<Sent | undefined>(`${form} sent`, undefined);
  // Choices made for one list do not apply to another.
  const ofChoices = `${kind.value} ${/^[^\r\n]*/.exec(text.value)?.[0]}`;
  const choices: ListChoices = chosen.value.of === ofChoices ? chosen.value : {};
  const list = useMemo(
    () => readUserList(text.value, kind.value, choices),
    [text.value, kind.value, chosen.value],
  );
  const name = JSON.stringify([kind.value, list.separator, list.column, list.isHeading, text.value]);
  const all = list.users.length;
  const sent = sending.value?.of === name ? sending.value.users : undefined;
  /** Sends the users that were not sent yet, request by request, until all are accepted or the person stops it. */
  const send = async (signal: AbortSignal, one: (users: Users, number: number) => Promise<unknown>) => {
    let from = sent ?? 0;
    while (from < all && !signal.aborted) {
      const some = list.users.slice(from, from + perRequestMax);
      const isTaken = await untilAccepted(signal, () => one(some, from / perRequestMax + 1));
      if (!isTaken) break;
      from += some.length;
      sending.set({ of: name, users: from });
    }
    return from === all;
  };
  return {
    /** A changed list has another name. */
    name,
    text,
    kind,
    choices,
    choose: (one: ListChoices) => chosen.set({ ...choices, ...one, of: ofChoices }),
    list,
    /** Why the form cannot be sent. */
    cannot: all === 0 ? 'The list names nobody yet.' : '',
    requests: Math.max(1, Math.ceil(all / perRequestMax)),
    /** How many users of this list are sent; undefined before the first ones are. */
    sent,
    send,
  };
}

type ListOfUsers = ReturnType<typeof useListOfUsers>;

/** The fields for the list, for how it is read, and for whom it names. */
export function ListFields({ of, to }: { readonly of: ListOfUsers; readonly to: string }) {
  const { text, kind, list, requests } = of;
  return (
    <>
      <Choice
        label="The list has"
        {...kind}
        options={[
          ['identity', 'identities, such as e-mail addresses'],
          ['user_id', 'user ids (numbers)'],
          ['anonymous_id', 'anonymous ids of Segment’s libraries'],
        ]}
      />
      <Field
        label="Users, one per line"
        {...text}
        lines={8}
        hint="Or CSV. A first line with identity, email, user_id or anonymous_id says which column it is; else you are asked."
        required
      />
      <ListFile setText={text.set} />
      {text.value.trim() !== '' && <ReadAs of={of} />}
      <p class="preview" role="status">
        {list.question === 'column' && 'No users yet: choose the column that has them.'}
        {list.question === 'heading' && 'No users yet: say whether the first line is one.'}
        {list.question === undefined && (
          <>
            {amountText(list.users.length, 'user')} to {to}
            {list.repeated > 0 && `, ${list.repeated.toLocaleString()} named twice`}
            {requests > 1 && `, in ${requests.toLocaleString()} requests`}.
          </>
        )}
      </p>
      <FirstNames list={list} kind={kind.value} />
      <BadLines list={list} />
    </>
  );
}

/** The field for a file. It is read as UTF-8 unless a byte order mark or the person says otherwise. */
function ListFile({ setText }: { readonly setText: (text: string) => void }) {
  const [unread, setUnread] = useState<{ file: File; fault: string; mayBeWindows1252: boolean } | undefined>(
    undefined,
  );
  const latest = useRef<File | undefined>(undefined);
  const read = async (file: File, encoding?: 'windows-1252') => {
    latest.current = file;
    const found = await file.arrayBuffer().then(
      (bytes) => readListFile(new Uint8Array(bytes), encoding),
      () => ({ fault: unreadable, mayBeWindows1252: false }),
    );
    if (file !== latest.current) return;
    // The previous list must not be taken for this file.
    setText('text' in found ? found.text : '');
    setUnread('text' in found ? undefined : { file, ...found });
  };
  return (
    <FileField
      label="Or a file (CSV or text)"
      accept=".csv,.tsv,.txt,text/csv,text/tab-separated-values,text/plain"
      chosen={(file) => void read(file)}
    >
      {unread !== undefined && (
        <p class="problem" role="alert">
          {unread.file.name} is not read. {unread.fault}{' '}
          {unread.mayBeWindows1252 && (
            <button type="button" class="small" onClick={() => void read(unread.file, 'windows-1252')}>
              Read it as Windows-1252 (ANSI)
            </button>
          )}
        </p>
      )}
    </FileField>
  );
}

const separatorWords = [
  [',', 'commas'],
  [';', 'semicolons'],
  ['\t', 'tabs'],
  ['|', 'vertical bars'],
  ['none', 'nothing: each line is one user'],
] as const;

/** How the list is read, with what a person can choose about that. */
function ReadAs({ of: { list, choices, choose } }: { readonly of: ListOfUsers }) {
  const { first, separator, column, isHeading, question, fault = '' } = list;
  const found = separatorWords.find(([one]) => one === separator)?.[1] ?? separator;
  const isPlain = separator === 'none' && isHeading === false;
  const isAsked = question !== undefined || Object.values(choices).some((said) => said !== undefined);
  return (
    <details open={isAsked || fault !== '' || list.bad.length > 0}>
      <summary>
        {isPlain
          ? 'Read as one user a line'
          : `Read as ${separator === 'none' ? 'one column' : `CSV, separated by ${found}`}${
              column === undefined || isHeading !== true ? '' : `: the column ${first[column]}`
            }`}
      </summary>
      <Choice
        label="Cells are separated by"
        value={choices.separator ?? ''}
        set={(said) => choose({ separator: said === '' ? undefined : said, column: undefined })}
        options={[['', `as found: ${found}`], ...separatorWords]}
      />
      <Choice
        label="Column of the users"
        value={column === undefined ? '' : String(column)}
        set={(said) => choose({ column: said === '' ? undefined : Number(said) })}
        options={[
          ...(column === undefined ? [['', 'not chosen yet'] as const] : []),
          ...first.map((cell, at) => [String(at), `${at + 1}: ${cell}`] as const),
        ]}
      />
      <Choice
        label="The first line"
        value={isHeading === undefined ? '' : isHeading ? 'heading' : 'user'}
        set={(said) => choose({ isHeading: said === '' ? undefined : said === 'heading' })}
        options={[
          ...(isHeading === undefined ? [['', 'not chosen yet'] as const] : []),
          ['heading', 'names the columns'],
          ['user', 'is a user, too'],
        ]}
      />
      <Problem text={fault} />
    </details>
  );
}

const namesShown = 10;

function FirstNames({ list: { users }, kind }: { readonly list: UserList; readonly kind: UserKind }) {
  if (users.length === 0) return null;
  const label = users.length > namesShown ? `The first ${namesShown} of them` : 'Read from the list';
  return <Names label={label} names={users.slice(0, namesShown).map((user) => user[kind] ?? '')} />;
}

/** Names exactly as they are, with visible blanks, which may be the only difference. */
function Names({ label, names }: { readonly label: string; readonly names: readonly string[] }) {
  return (
    <ul class="others" aria-label={label}>
      {names.map((name) => (
        <li key={name}>
          <code class="exact">{name}</code>
        </li>
      ))}
    </ul>
  );
}

function BadLines({ list: { bad } }: { readonly list: UserList }) {
  if (bad.length === 0) return null;
  return (
    <p class="problem">
      {amountText(bad.length, 'line is left out, since it names', 'lines are left out, since they name')} no
      user:{' '}
      {bad
        .slice(0, 5)
        .map(({ line, text, why }) => `${line}: ${text.slice(0, 40)} (${why})`)
        .join('; ')}
      {bad.length > 5 && ' …'}
    </p>
  );
}

/** How much of the list has been sent, once some of it has. */
export function Sending({ of, what }: { readonly of: ListOfUsers; readonly what: string }) {
  const { sent, list } = of;
  if (sent === undefined) return null;
  const all = list.users.length;
  return (
    <p role="status">
      <progress aria-label={what} max={all} value={sent} />
      {sent < all && `${sent.toLocaleString()} of ${amountText(all, 'user')} are submitted.`}
    </p>
  );
}

type Preview = Answer<'previewDeletion'>;
type Previewed = { readonly of: string; readonly parts: readonly Preview[] };

const perPreviewMax = counts.deletionTargetsMax;
const previewAfterMs = 1_000;

/** What is held at present about the users of the list. Unless the list is long, it is looked up once nobody is editing the list. */
export function PreviewOf(props: {
  readonly of: ListOfUsers;
  readonly account: Account;
  readonly inCase: object;
}) {
  const { of, account, inCase } = props;
  const { list, name } = of;
  const [previewed, setPreviewed] = useState<Previewed | undefined>(undefined);
  const [lookedUp, setLookedUp] = useState<number | undefined>(undefined);
  const { busy, fault, begin } = useWork();
  const tried = useRef('');
  const all = list.users.length;
  const preview = async (signal: AbortSignal) => {
    const parts: Preview[] = [];
    try {
      for (let from = 0; from < all && !signal.aborted; from += perPreviewMax) {
        setLookedUp(from);
        const some = list.users.slice(from, from + perPreviewMax);
        const path = `/accounts/${part(account.account_id)}/user_deletion`;
        const found = await call<'previewDeletion'>('POST', path, { users: some, dry_run: true, ...inCase });
        const unclear = found.unclear.map((each) => ({ ...each, place: each.place + from }));
        parts.push({ ...found, unclear });
      }
    } finally {
      setLookedUp(undefined);
    }
    setPreviewed({ of: name, parts });
  };
  useEffect(() => {
    if (busy || all === 0 || all > perPreviewMax || tried.current === name) return;
    const timer = setTimeout(() => {
      tried.current = name;
      begin(preview);
    }, previewAfterMs);
    return () => clearTimeout(timer);
  }, [name, busy]);
  const again = () => {
    tried.current = name;
    begin(preview);
  };
  return (
    <>
      <div class="act">
        <button type="button" disabled={all === 0} aria-disabled={busy} onClick={again}>
          {busy ? 'One moment…' : 'Preview'}
        </button>
        <Problem text={fault} />
      </div>
      {lookedUp !== undefined && all > perPreviewMax && (
        <progress aria-label="Previewed" max={all} value={lookedUp} />
      )}
      {previewed?.of === name && <Found parts={previewed.parts} of={of} account={account} />}
    </>
  );
}

function Found(props: {
  readonly parts: readonly Preview[];
  readonly of: ListOfUsers;
  readonly account: Account;
}) {
  const { parts, account } = props;
  const { list, kind } = props.of;
  const usersFound = parts.reduce((sum, { users_found }) => sum + users_found, 0);
  const unclear = parts.flatMap((each) => each.unclear);
  const missing = list.users.length - usersFound;
  const nameOf = ({ place }: Preview['unclear'][number]) => list.users[place]?.[kind.value] ?? '';
  return (
    <div class="found">
      <p role="status">
        {usersFound.toLocaleString()} found, {missing.toLocaleString()} not found
        {unclear.some(({ similar }) => similar > 0) && '; some look like others who are not on the list'}.
      </p>
      {usersFound === 0 && (
        <p class="problem">
          None of these users was found. Names have to match exactly, with case and blanks: compare some with
          the page Users before you go on.
        </p>
      )}
      <RowsByTable found={parts.flatMap(({ found }) => found)} account={account} />
      {unclear.length > 0 && (
        <Table
          caption="Users to look at again"
          copies
          rows={unclear}
          first={10}
          keyOf={({ place }) => String(place)}
          empty=""
          columns={[
            { title: 'User', text: nameOf },
            { title: 'Records', text: ({ found, rows }) => (found ? rows : 'not found'), number: true },
            {
              title: 'Similar',
              text: ({ similar }) => (similar === 0 ? '' : `${similar} in another case or with blanks`),
            },
          ]}
          actions={
            unclear.some(({ similar }) => similar > 0) &&
            may('findSimilarUsersEverywhere') &&
            ((each) => each.similar > 0 && <Similar account={account} identity={nameOf(each)} />)
          }
        />
      )}
    </div>
  );
}

/** Which identities are similar to the given one, in all environments of the account. */
function Similar({ account, identity }: { readonly account: Account; readonly identity: string }) {
  const [found, setFound] = useState<readonly string[] | undefined>(undefined);
  if (found !== undefined) return <Names label={`Similar to ${identity}`} names={found} />;
  const look = async () => {
    const path = `/accounts/${part(account.account_id)}/user/similar`;
    setFound((await call<'findSimilarUsersEverywhere'>('POST', path, { identity })).similar);
  };
  return <ActionButton button="Which?" label={`Which are similar to ${identity}?`} small work={look} />;
}

const triesMax = 20;

/**
 * Submits again while the service is busy or has no room, so that nobody has to find out where a long list was interrupted. Settles with
 * false if the person stops it first.
 */
async function untilAccepted(signal: AbortSignal, submit: () => Promise<unknown>): Promise<boolean> {
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
