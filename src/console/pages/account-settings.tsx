// Settings of a whole account: when cases are due, who confirms deletions, and how its people sign in.

import { useState } from 'preact/hooks';
import { type Account, call, part, reloadAccounts } from '../api.js';
import { Check, Field, useField } from '../parts/fields.js';
import { Form } from '../parts/form.js';

export function AccountSettings({ account }: { readonly account: Account }) {
  const [said, setSaid] = useState('');
  return (
    <section class="card">
      <h2>The account {account.name}</h2>
      <SettingsForm key={JSON.stringify(account.settings)} account={account} say={setSaid} />
      <p role="status">{said}</p>
    </section>
  );
}

/** To be made anew when the settings have changed, so that it shows and keeps those of others. */
function SettingsForm({ account, say }: { readonly account: Account; readonly say: (text: string) => void }) {
  const { due_days, confirm_from, second_factor } = account.settings;
  const days = useField(String(due_days));
  const isConfirmed = useField(confirm_from !== 'none');
  const from = useField(String(confirm_from === 'none' ? 1 : confirm_from));
  const isRequired = useField(second_factor === 'required');
  return (
    <Form
      label="Settings of the account"
      submit="Change settings"
      work={async () => {
        say('');
        const wanted = {
          due_days: Number(days.value),
          confirm_from: isConfirmed.value ? Number(from.value) : 'none',
          second_factor: isRequired.value ? 'required' : 'optional',
        };
        // Only what was changed: two people who change different settings must not undo each other's changes.
        const changes = Object.entries(wanted).filter(
          ([name, value]) => value !== account.settings[name as keyof typeof wanted],
        );
        await call('PATCH', `/accounts/${part(account.account_id)}`, Object.fromEntries(changes));
        await reloadAccounts();
        say('The settings hold from now on.');
      }}
    >
      <Field
        label="Days until a case is due"
        type="number"
        {...days}
        hint="From the day when it was received. The due day of a single case can be changed."
        required
      />
      <Check
        label="A second privacy officer confirms deletions"
        {...isConfirmed}
        hint="One person proposes a deletion, and another one submits the same list within 7 days. Programs with an API key need no confirmation."
      />
      {isConfirmed.value && (
        <Field label="From how many users on" type="number" {...from} hint="1: every deletion." required />
      )}
      <Check
        label="Everybody needs a second factor"
        {...isRequired}
        hint="People without one see nothing of the account until they have set one up. Single sign-on has its own."
      />
    </Form>
  );
}
