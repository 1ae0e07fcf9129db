// Lines of the audit log in words: who did what. The reader can save all of them as a file.

import { type Answer, call, withQuery } from '../api.js';
import { actionText } from '../commands.js';
import { ActionButton } from '../parts/form.js';
import { DownloadAll, Pages, usePages } from '../parts/paged.js';
import { Time } from '../parts/parts.js';
import { Table, type TextColumn } from '../parts/table.js';
import { accounts } from '../session.js';
import { detailText, outcomeText } from './audit-words.js';

export type AuditEntry = Answer<'listAudit'>[number];

/** The maximum number of lines that the service sends at once. */
const perPage = 100;

const actors: Readonly<Record<string, string>> = {
  admin_token: 'ADMIN_TOKEN',
  program_key: 'key of a program',
  command_line: 'command line',
  api_key: 'API key',
  person: '',
};

const columns: readonly TextColumn<AuditEntry>[] = [
  { title: 'When', text: (each) => each.at, cell: (each) => <Time at={each.at} to="second" /> },
  {
    title: 'Who',
    text: whoOf,
    cell: (each) => (
      <>
        {whoOf(each)} <span class="hint">{each.address}</span>
      </>
    ),
  },
  {
    title: 'What',
    text: (each) => actionText(each.action),
    cell: (each) => <span class="what">{actionText(each.action)}</span>,
  },
  { title: 'About', text: aboutOf, isLong: true },
  {
    title: 'Outcome',
    text: (each) => outcomeText(each.outcome),
    chip: ({ outcome }) => (outcome === 'done' ? 'good' : 'warn'),
  },
  { title: 'From', text: (each) => each.address, isCopiedOnly: true },
];

function whoOf({ actor, actor_name }: AuditEntry): string {
  return [actors[actor] ?? actor, actor_name].join(' ').trim();
}

/** `of`: the query parameters that select the lines. */
export function AuditLines(props: {
  readonly of: Readonly<Record<string, string | undefined>>;
  readonly caption: string;
  readonly file: string;
  readonly empty: string;
}) {
  const { of, caption, file, empty } = props;
  const load = (oldest?: AuditEntry) => {
    const place = { before: oldest?.at, before_id: oldest?.id };
    return call<'listAudit'>('GET', withQuery('/audit', { ...of, ...place }));
  };
  const next = (page: Answer<'listAudit'>) => (page.length < perPage ? undefined : page.at(-1));
  const log = usePages(withQuery('', of), load, next);
  return (
    <>
      <Pages from={log} button="Earlier actions">
        {(shown) => (
          <Table
            caption={caption}
            rows={shown.flat()}
            {...(shown.length === 1 ? { first: 20 } : {})}
            keyOf={({ id }) => id}
            empty={empty}
            columns={columns}
          />
        )}
      </Pages>
      <div class="buttons">
        <ActionButton button="Load again" small work={async () => log.reload()} />
        <DownloadAll
          button="Download all as CSV"
          small
          file={file}
          load={load}
          next={next}
          header={[...columns.map(({ title }) => title), 'Request']}
          rowsOf={(page) =>
            page.map((each) => [...columns.map(({ text }) => text(each)), each.deletion_request_id])
          }
          says={(loaded) => <span role="status">{loaded.toLocaleString()} lines loaded…</span>}
        />
      </div>
    </>
  );
}

function aboutOf({ app_id, account_id, key_id, deletion_request_id, details }: AuditEntry): string {
  const named = Object.entries(details).map(([name, value]) => detailText(name, value));
  const { value } = accounts;
  // People who see only one account know which one it is.
  const account =
    value.length === 1 ? '' : (value.find((each) => each.account_id === account_id)?.name ?? account_id);
  const environment = value
    .flatMap(({ environments }) => environments)
    .find((each) => each.app_id === app_id)?.name;
  const key = key_id === '' ? '' : `key ${key_id}`;
  const request = deletion_request_id === '' ? '' : `request ${deletion_request_id.slice(0, 8)}`;
  return [account, environment ?? app_id, key, request, ...named].filter((text) => text !== '').join(' · ');
}
