// What a deletion has found: rows by environment and table, what was counted for each of its users, and its certificate.

import { useState } from 'preact/hooks';
import { type Account, call, type Deletion, type FoundRows, part } from '../api.js';
import { Act, Dialog, Loaded, Table, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';

type Counted = {
  readonly place: number;
  readonly found: boolean;
  readonly rows: number;
  readonly similar: number;
};
type Page = { readonly users: readonly Counted[]; readonly cursor?: string };

export function Evidence(props: {
  readonly deletion: Deletion;
  readonly account: Account;
  readonly close: () => void;
}) {
  const { account, close } = props;
  const path = `/deletions/${part(props.deletion.deletion_request_id)}`;
  // It may have gone on since the list was loaded.
  const { data: deletion = props.deletion } = useResource<Deletion>(path);
  const isComplete = deletion.status === 'complete';
  return (
    <Dialog title="Evidence of a deletion" close={close}>
      <dl class="facts">
        <dt>Request</dt>
        <dd>
          <code>{deletion.deletion_request_id}</code>
        </dd>
        {deletion.reference !== undefined && (
          <>
            <dt>Reference</dt>
            <dd>{deletion.reference}</dd>
          </>
        )}
        <dt>Submitted</dt>
        <dd>
          <Time at={deletion.submitted_at} />
        </dd>
        {deletion.completed_at !== undefined && (
          <>
            <dt>Complete</dt>
            <dd>
              <Time at={deletion.completed_at} />
            </dd>
          </>
        )}
        <dt>Users</dt>
        <dd>
          {deletion.targets.toLocaleString()}
          {deletion.users_found !== undefined &&
            `, of which ${deletion.users_found.toLocaleString()} had rows`}
        </dd>
      </dl>
      {deletion.found !== undefined && <RowsByTable found={deletion.found} account={account} />}
      {isComplete ? (
        <CountedUsers path={path} deletion={deletion} />
      ) : (
        <p class="muted">Once it is complete, this page says what was found of each user.</p>
      )}
      <div class="buttons">
        {isComplete && (
          <a
            class="button"
            href={`/admin/v1${path}/certificate`}
            download={`deletion-${deletion.deletion_request_id}.json`}
          >
            Download the certificate
          </a>
        )}
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

/** Rows by environment and kind. */
export function RowsByTable({
  found,
  account,
}: {
  readonly found: readonly FoundRows[];
  readonly account: Account;
}) {
  const sums = new Map<string, number>();
  const nameOf = new Map(account.environments.map(({ app_id, name }) => [app_id, name]));
  for (const { app_id, table, rows } of found) {
    const key = `${nameOf.get(app_id) ?? app_id}\n${kindOf[table] ?? table}`;
    sums.set(key, (sums.get(key) ?? 0) + rows);
  }
  return (
    <Table
      caption="Rows by environment"
      rows={[...sums]}
      keyOf={([key]) => key}
      empty="No rows were found."
      columns={[
        { title: 'Environment', text: ([key]) => key.split('\n')[0] ?? '' },
        { title: 'What', text: ([key]) => key.split('\n')[1] ?? '' },
        { title: 'Rows', text: ([, rows]) => rows.toLocaleString(), number: true },
      ]}
    />
  );
}

const kindOf: Readonly<Record<string, string>> = {
  stored_events: 'events',
  stored_user_properties: 'user properties',
  stored_user_identities: 'identifications',
  failed_events: 'failed rows',
};

/** By their places in the list, since nobody's name is kept. */
function CountedUsers({ path, deletion }: { readonly path: string; readonly deletion: Deletion }) {
  const first = useResource<Page>(`${path}/users`);
  const [more, setMore] = useState<readonly Page[]>([]);
  const isOver = Date.parse(deletion.evidence_until ?? '') <= Date.now();
  if (isOver) return <p class="muted">What was found of each user was kept for 30 days.</p>;
  return (
    <Loaded from={first}>
      {(page) => {
        const cursor = (more.at(-1) ?? page).cursor;
        return (
          <>
            <Table
              caption="What was found of each user"
              rows={[page, ...more].flatMap(({ users }) => users)}
              keyOf={({ place }) => String(place)}
              empty="Nothing is kept of single users."
              columns={[
                { title: 'Place in the list', text: ({ place }) => String(place + 1) },
                {
                  title: 'Rows',
                  text: ({ found, rows }) => (found ? rows.toLocaleString() : 'not found'),
                  number: true,
                },
                { title: 'Similar users', text: ({ similar }) => (similar === 0 ? '' : String(similar)) },
              ]}
            />
            {cursor !== undefined && (
              <Act
                button="More users"
                work={async () => {
                  const next = await call<Page>('GET', `${path}/users?cursor=${part(cursor)}`);
                  setMore((known) => [...known, next]);
                }}
              />
            )}
          </>
        );
      }}
    </Loaded>
  );
}
