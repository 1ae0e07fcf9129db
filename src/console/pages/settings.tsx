// Settings: environments, people, accounts, one's own access, and the audit log. People see only what they may do.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { type Role, roles } from '../../contract/roles.js';
import {
  type Account,
  call,
  type EnvironmentOfList,
  type Person,
  part,
  reloadAccounts,
  withQuery,
} from '../api.js';
import { Confirm } from '../parts/dialog.js';
import { Choice, Field, useField } from '../parts/fields.js';
import { Button, Form } from '../parts/form.js';
import { Secret } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { roleNames, roleTexts } from '../parts/roles.js';
import { LoadedTable, Table } from '../parts/table.js';
import { accounts, may, person } from '../session.js';
import { AccountSettings } from './account-settings.js';
import { AuditLog } from './audit-log.js';
import { EnvironmentSettings } from './environment-settings.js';
import { OwnAccess } from './own-access.js';

export function Settings({ account }: { readonly account: Account | undefined }) {
  const sections = sectionsFor(account);
  return (
    <>
      <h1>Settings</h1>
      <ul class="sections" aria-label="On this page">
        {sections.map(({ id, title }) => (
          <li key={id}>
            <a href={`#${id}`}>{title}</a>
          </li>
        ))}
      </ul>
      {sections.map(({ id, show }) => (
        <div key={id} id={id}>
          {show()}
        </div>
      ))}
    </>
  );
}

type Section = { readonly id: string; readonly title: string; readonly show: () => ComponentChildren };

/** The sections that the person who is signed in may use, in the order of the page. */
function sectionsFor(account: Account | undefined): readonly Section[] {
  const all: readonly (Section | false)[] = [
    account !== undefined && {
      id: 'environments',
      title: 'Environments',
      show: () => <Environments account={account} />,
    },
    account !== undefined &&
      may('setAccount') && {
        id: 'account',
        title: 'Account',
        show: () => <AccountSettings account={account} />,
      },
    account !== undefined &&
      may('listPeople') && { id: 'people', title: 'People', show: () => <People account={account} /> },
    may('createAccount') && { id: 'accounts', title: 'Accounts', show: () => <Accounts /> },
    { id: 'access', title: 'Your access', show: () => <OwnAccess /> },
    may('listAudit') && { id: 'audit', title: 'Audit log', show: () => <AuditLog account={account} /> },
  ];
  return all.filter((each) => each !== false);
}

function Environments({ account }: { readonly account: Account }) {
  const name = useField('');
  const [changing, setChanging] = useState<EnvironmentOfList | undefined>(undefined);
  return (
    <section class="card">
      <h2>Environments</h2>
      <Table
        caption="Environments"
        rows={account.environments}
        keyOf={({ app_id }) => app_id}
        empty={
          may('addEnvironment')
            ? 'There is no environment. Add the first one below.'
            : 'There is no environment. An administrator can add one.'
        }
        columns={[
          {
            title: 'Name',
            text: (each) => each.name,
            cell: (each) => (
              <>
                {each.name} {each.main && <span class="chip accent">main</span>}
              </>
            ),
          },
          { title: 'App ID', text: (each) => each.app_id, cell: (each) => <code>{each.app_id}</code> },
        ]}
        actions={(each) => (
          <Button
            kind="small"
            text="Settings"
            label={`Settings of ${each.name}`}
            act={() => setChanging(each)}
          />
        )}
      />
      {may('addEnvironment') && (
        <Form
          label="New environment"
          submit="Add environment"
          inline
          work={async () => {
            await call('POST', `/accounts/${part(account.account_id)}/environments`, {
              name: name.value.trim(),
            });
            name.set('');
            await reloadAccounts();
          }}
        >
          <Field label="Name of the new environment" {...name} required />
        </Form>
      )}
      {changing !== undefined && (
        <EnvironmentSettings environment={changing} close={() => setChanging(undefined)} />
      )}
    </section>
  );
}

function People({ account }: { readonly account: Account }) {
  const isOperator = person.value?.role === 'operator';
  const people = useResource<'listPeople'>(
    withQuery('/people', { account_id: isOperator ? undefined : account.account_id }),
  );
  const email = useField('');
  const role = useField<Role>('viewer');
  const [link, setLink] = useState<{ readonly email: string; readonly url: string } | undefined>(undefined);
  const invite = async ({ email, role, account_id }: Pick<Person, 'email' | 'role' | 'account_id'>) => {
    const given = { email, role, account_id: account_id ?? undefined };
    setLink(await call<'invitePerson'>('POST', '/people', given));
    people.reload();
  };
  const nameOfAccount = (id: string | null) =>
    id === null ? 'all' : (accounts.value.find(({ account_id }) => account_id === id)?.name ?? id);
  return (
    <section class="card">
      <h2>People</h2>
      <LoadedTable
        from={people}
        caption="People"
        copies
        first={50}
        keyOf={({ person_id }) => person_id}
        empty="Nobody is here yet. Invite the first person below."
        columns={[
          { title: 'E-mail', text: (each) => each.email, isLong: true },
          { title: 'Role', text: (each) => roleNames[each.role] },
          { title: 'Account', text: (each) => nameOfAccount(each.account_id), isLong: true },
          {
            title: 'State',
            text: stateOf,
            chip: ({ state }) => (state === 'active' ? 'good' : 'warn'),
          },
          {
            title: 'Second factor',
            text: (each) => (each.signs_on ? 'at the provider' : each.second_factor ? 'yes' : 'no'),
          },
        ]}
        actions={(each) => (
          <>
            {isOperator && each.state === 'active' && !each.signs_on && (
              <Confirm
                button="Password link"
                of={`for ${each.email}`}
                title="Make a link for a new password?"
                says={
                  <p>
                    Whoever has the link chooses a password of <strong>{each.email}</strong>, once, within 7
                    days. It removes their second factor, too, since its device may be lost. Give it to them
                    in person.
                  </p>
                }
                confirm="Make the link"
                work={() => invite(each)}
              />
            )}
            <Confirm
              button="Remove"
              of={each.email}
              title="Remove this person?"
              says={
                <p>
                  <strong>{each.email}</strong> is signed out at once and cannot come back without another
                  invitation{each.state === 'active' && ', which only an operator can make'}. What they did
                  stays in the audit log.
                </p>
              }
              confirm="Remove person"
              work={() => call('DELETE', `/people/${part(each.person_id)}`).then(people.reload)}
            />
          </>
        )}
      />
      {link !== undefined && (
        <Secret text={link.url} what="link">
          <strong>Give this link to {link.email}.</strong> It works once, within 7 days, and is shown only
          now.
        </Secret>
      )}
      <Form
        label="Invite somebody"
        submit="Invite"
        inline
        work={async () => {
          const account_id = role.value === 'operator' ? null : account.account_id;
          await invite({ email: email.value, role: role.value, account_id });
          email.set('');
        }}
      >
        <Field label="E-mail of the new person" type="email" {...email} required />
        <Choice
          label={`Role in ${account.name}`}
          {...role}
          options={roles
            .filter((each) => isOperator || each !== 'operator')
            .toReversed()
            .map((each) => [each, roleTexts[each]] as const)}
        />
      </Form>
    </section>
  );
}

function stateOf({ state, invited_until }: Person): string {
  if (state === 'active') return 'active';
  return invited_until === null ? 'invitation has ended' : 'invited';
}

function Accounts() {
  const name = useField('');
  return (
    <section class="card">
      <h2>Accounts</h2>
      <Table
        caption="Accounts"
        rows={accounts.value}
        keyOf={({ account_id }) => account_id}
        empty="There is no account."
        columns={[
          { title: 'Name', text: (each) => each.name },
          {
            title: 'Account ID',
            text: (each) => each.account_id,
            cell: (each) => <code>{each.account_id}</code>,
          },
          { title: 'Environments', text: (each) => each.environments.length, number: true },
        ]}
      />
      <Form
        label="New account"
        submit="Create account"
        inline
        work={async () => {
          await call('POST', '/accounts', { name: name.value.trim(), environments: ['Main Production'] });
          name.set('');
          await reloadAccounts();
        }}
      >
        <Field
          label="Name of the new account"
          {...name}
          hint="It begins with one environment, Main Production."
          required
        />
      </Form>
    </section>
  );
}
