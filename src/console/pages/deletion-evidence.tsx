// What a deletion has found: rows by environment and table, what was counted for each of its users, and its certificate.

import { type Account, type Answer, call, type Deletion, part, withQuery } from '../api.js';
import { Dialog } from '../parts/dialog.js';
import { Button } from '../parts/form.js';
import { DownloadAll, Pages, usePages } from '../parts/paged.js';
import { Facts, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { RowsByTable } from '../parts/rows-by-table.js';
import { Table } from '../parts/table.js';

type Page = Answer<'listDeletionUsers'>;

const everyMs = 2_000;

export function Evidence(props: {
  readonly deletion: Deletion;
  readonly account: Account;
  readonly close: () => void;
}) {
  const { account, close } = props;
  const path = `/deletions/${part(props.deletion.deletion_request_id)}`;
  // The deletion may have progressed since the list was loaded, and progresses while this is open.
  const every = props.deletion.status === 'pending' ? everyMs : undefined;
  const { data: deletion = props.deletion } = useResource<'showDeletion'>(path, every);
  const isComplete = deletion.status === 'complete';
  return (
    <Dialog title="Evidence of a deletion" close={close}>
      <Facts
        of={[
          ['Request', <code key="id">{deletion.deletion_request_id}</code>],
          ['Reference', deletion.reference],
          ['Submitted', <Time key="submitted" at={deletion.submitted_at} />],
          ['Hidden from every query', timeOf(deletion.hidden_at)],
          ['Complete', timeOf(deletion.completed_at)],
          ['Last backup with the data ends', timeOf(deletion.backups_end_at)],
          [
            'Users',
            `${deletion.targets.toLocaleString()}${
              deletion.users_found === undefined
                ? ''
                : `, of whom ${deletion.users_found.toLocaleString()} had data`
            }`,
          ],
        ]}
      />
      {deletion.found !== undefined && <RowsByTable found={deletion.found} account={account} />}
      {isComplete && deletion.users_found === 0 && (
        <p role="status">
          <strong>It found nobody.</strong> Nothing was held about any of these users. Names have to match
          exactly, with case and blanks: if you expected data, compare the list with the names on the page
          Users.
        </p>
      )}
      {isComplete ? (
        <CountedUsers path={path} deletion={deletion} />
      ) : (
        <p class="muted">Once it is complete, this page says what was found of each user.</p>
      )}
      <div class="buttons">
        {isComplete && (
          <>
            <a
              class="button"
              href={`/certificate#${deletion.deletion_request_id}`}
              target="_blank"
              rel="noopener"
            >
              Certificate to print
            </a>
            <a
              class="button"
              href={`/admin/v1${path}/certificate`}
              download={`deletion-${deletion.deletion_request_id}.json`}
            >
              Download the certificate
            </a>
          </>
        )}
        <Button text="Close" act={close} />
      </div>
    </Dialog>
  );
}

function timeOf(at: string | undefined) {
  return at && <Time at={at} />;
}

/** What was counted for each user. No names are kept, so users are shown by their places in the list that was submitted. */
function CountedUsers({ path, deletion }: { readonly path: string; readonly deletion: Deletion }) {
  const next = ({ cursor }: Page) => cursor;
  const load = (cursor?: string) => call<'listDeletionUsers'>('GET', withQuery(`${path}/users`, { cursor }));
  const counted = usePages(path, load, next);
  const isExpired = Date.parse(deletion.evidence_until ?? '') <= Date.now();
  if (isExpired) return <p class="muted">What was found of each user is kept for 30 days only.</p>;
  return (
    <>
      <p class="muted">
        No names are kept. Places count users as the list was read: not its heading, empty lines, repeats, or
        lines that were left out. To ask about one user, find them under Users.
      </p>
      <Pages from={counted} button="More users">
        {(pages) => (
          <Table
            caption="What was found of each user"
            rows={pages.flatMap(({ users }) => users)}
            first={5}
            keyOf={({ place }) => String(place)}
            empty="Nothing is kept about single users."
            columns={[
              { title: 'Place', text: ({ place }) => place + 1 },
              {
                title: 'Records',
                text: ({ found, rows }) => (found ? rows : 'not found'),
                number: true,
              },
              { title: 'Similar users', text: ({ similar }) => (similar === 0 ? '' : similar) },
            ]}
          />
        )}
      </Pages>
      <DownloadAll
        button="Download what was found of all users"
        file={`deletion-${deletion.deletion_request_id}`}
        load={load}
        next={next}
        header={['place', 'records', 'similar users']}
        rowsOf={({ users }) => users.map(({ place, rows, similar }) => [place + 1, rows, similar])}
        says={(loaded) => (
          <progress aria-label="Loaded for the download" max={deletion.targets} value={loaded} />
        )}
      />
    </>
  );
}
