// The audit log: who did what to which account, environment, key or deletion request. Operators see all accounts.

import type { Role } from '../../contract/roles.js';
import { type Account, call, part } from '../api.js';
import { type Answer, actionText } from '../commands.js';
import { Pages, usePages } from '../parts/paged.js';
import { Time } from '../parts/parts.js';
import { Table } from '../parts/table.js';
import { accounts, person } from '../session.js';
import { detailText, outcomeText } from './audit-words.js';

type AuditEntry = Answer<'listAudit'>[number];

/** How many lines the service sends at most. */
const perPage = 100;

const auditTexts: Readonly<Record<Role, string>> = {
  operator: 'The actions in all accounts, the latest first.',
  administrator: 'The actions in this account, the latest first.',
  privacy: 'What you did in this account, the latest first.',
  viewer: '',
};

/** Privacy officers see their own actions. */
export function auditTitle(): string {
  return person.value?.role === 'privacy' ? 'Your actions' : 'Audit log';
}

const actors: Readonly<Record<string, string>> = {
  admin_token: 'ADMIN_TOKEN',
  command_line: 'command line',
  api_key: 'API key',
  person: '',
};

export function AuditLog({ account }: { readonly account: Account | undefined }) {
  const isOperator = person.value?.role === 'operator';
  const path =
    isOperator || account === undefined ? '/audit' : `/audit?account_id=${part(account.account_id)}`;
  const log = usePages(
    path,
    (oldest?: AuditEntry) =>
      call<Answer<'listAudit'>>('GET', oldest === undefined ? path : `${path}${beforeOf(path, oldest)}`),
    (page) => (page.length < perPage ? undefined : page.at(-1)),
  );
  return (
    <section class="card">
      <h2>{auditTitle()}</h2>
      <p class="muted">
        {auditTexts[person.value?.role ?? 'viewer']}{' '}
        <button type="button" class="small" onClick={log.reload}>
          Load again
        </button>
      </p>
      <Pages from={log} button="Earlier actions">
        {(shown) => (
          <Table
            caption={auditTitle()}
            rows={shown.flat()}
            {...(shown.length === 1 ? { first: 20 } : {})}
            keyOf={({ id }) => id}
            empty="No action yet. Each action of a person, a program or the command line gets a line here."
            columns={[
              { title: 'When', text: (each) => each.at, cell: (each) => <Time at={each.at} seconds /> },
              {
                title: 'Who',
                text: (each) => [actors[each.actor] ?? each.actor, each.actor_name].join(' ').trim(),
              },
              {
                title: 'What',
                text: (each) => actionText(each.action),
                cell: (each) => <span class="what">{actionText(each.action)}</span>,
              },
              {
                title: 'About',
                text: (each) => aboutOf(each),
                cell: (each) => <span class="about">{aboutOf(each)}</span>,
              },
              {
                title: 'Outcome',
                text: (each) => outcomeText(each.outcome),
                cell: (each) => (
                  <span class={each.outcome === 'done' ? 'chip good' : 'chip warn'}>
                    {outcomeText(each.outcome)}
                  </span>
                ),
              },
              { title: 'From', text: (each) => each.address },
            ]}
          />
        )}
      </Pages>
    </section>
  );
}

function beforeOf(path: string, { at, id }: AuditEntry): string {
  return `${path.includes('?') ? '&' : '?'}before=${part(at)}&before_id=${part(id)}`;
}

function aboutOf({ app_id, account_id, key_id, deletion_request_id, details }: AuditEntry): string {
  const named = Object.entries(details).map(([name, value]) => detailText(name, value));
  const account = accounts.value.find((each) => each.account_id === account_id)?.name ?? account_id;
  const environment = accounts.value
    .flatMap(({ environments }) => environments)
    .find((each) => each.app_id === app_id)?.name;
  const key = key_id === '' ? '' : `key ${key_id}`;
  const request = deletion_request_id === '' ? '' : `request ${deletion_request_id.slice(0, 8)}`;
  return [account, environment ?? app_id, key, request, ...named].filter((text) => text !== '').join(' · ');
}
