// The audit log: who did what to which account, environment, key or deletion request. Operators see all accounts; privacy officers see what
// was done with users.

import { useState } from 'preact/hooks';
import type { Role } from '../../contract/roles.js';
import type { Account } from '../api.js';
import { actionsInWords } from '../commands.js';
import { Choice, Field } from '../parts/fields.js';
import { Form } from '../parts/form.js';
import { person } from '../session.js';
import { AuditLines } from './audit-lines.js';

const auditTexts: Readonly<Record<Role, string>> = {
  operator: 'The actions in all accounts, the latest first.',
  administrator: 'The actions in this account, the latest first.',
  privacy: 'What was done with users of this account, by anybody, and what you did. The latest first.',
  viewer: '',
};

const any = { who: '', action: '', since: '', until: '' };

export function AuditLog({ account }: { readonly account: Account | undefined }) {
  const isOperator = person.value?.role === 'operator';
  const [wanted, setWanted] = useState(any);
  const [shown, setShown] = useState(any);
  const set = (name: keyof typeof any) => (value: string) => setWanted({ ...wanted, [name]: value });
  return (
    <section class="card">
      <h2>Audit log</h2>
      <p class="muted">{auditTexts[person.value?.role ?? 'viewer']}</p>
      <Form label="Find actions" submit="Find" inline work={async () => setShown(wanted)}>
        <Field label="Who" value={wanted.who} set={set('who')} hint="An e-mail address. Empty: anybody." />
        <Choice
          label="What"
          value={wanted.action}
          set={set('action')}
          options={[['', 'anything'], ...actionsInWords()]}
        />
        <Field label="From day" type="date" value={wanted.since} set={set('since')} />
        <Field label="To day" type="date" value={wanted.until} set={set('until')} />
      </Form>
      <AuditLines
        of={{
          account_id: isOperator ? undefined : account?.account_id,
          who: shown.who.trim().toLowerCase(),
          action: shown.action,
          since: shown.since && new Date(`${shown.since}T00:00:00`).toISOString(),
          until: shown.until && new Date(`${shown.until}T23:59:59.999`).toISOString(),
        }}
        caption="Audit log"
        file="audit-log"
        empty={
          shown === any
            ? 'No action yet. Each action of a person, a program or the command line gets a line here.'
            : 'No action is as you asked for.'
        }
      />
    </section>
  );
}
