// Your access: the sessions, the password and the second factor of the person who is signed in.

import { useState } from 'preact/hooks';
import { call, part } from '../api.js';
import { Confirm } from '../parts/dialog.js';
import { Field, useField } from '../parts/fields.js';
import { Form } from '../parts/form.js';
import { useResource } from '../parts/resource.js';
import { roleTexts } from '../parts/roles.js';
import { LoadedTable } from '../parts/table.js';
import { person } from '../session.js';
import { SecondFactor } from './second-factor.js';

/** The order matters: Edge and Opera also name Chrome in their User-Agent headers, and Chrome names Safari. */
const browsers = ['Edg', 'OPR', 'Firefox', 'Chrome', 'Safari'];
const systems = ['Android', 'iPhone', 'iPad', 'Windows', 'Mac OS', 'Linux'];
const fullNames: Readonly<Record<string, string>> = { Edg: 'Edge', OPR: 'Opera' };

/** `Chrome on Linux`, or the whole User-Agent header if that cannot be read from it. */
function browserOf(agent: string): string {
  const browser = browsers.find((name) => agent.includes(`${name}/`));
  const system = systems.find((name) => agent.includes(name));
  if (browser === undefined || system === undefined) return agent;
  return `${fullNames[browser] ?? browser} on ${system}`;
}

export function OwnAccess() {
  const sessions = useResource<'listSessions'>('/sessions');
  const signsOn = person.value?.signs_on === true;
  return (
    <section class="card">
      <h2>Your access</h2>
      <p>
        You are {person.value?.email}, {roleTexts[person.value?.role ?? 'viewer']}.
        {signsOn && ' You sign in through your provider, which has your password and second factor.'}
      </p>
      {!signsOn && (
        <>
          <SecondFactor />
          <NewPassword done={sessions.reload} />
        </>
      )}
      <h3>Sessions</h3>
      <LoadedTable
        from={sessions}
        caption="Your sessions"
        keyOf={({ id }) => id}
        empty="There is no session."
        columns={[
          { title: 'Began', time: (each) => each.began_at },
          { title: 'Ends', time: (each) => each.ends_at },
          { title: 'From', text: (each) => each.address },
          {
            title: 'Browser',
            text: (each) => each.agent,
            cell: (each) => (
              <span class="agent" title={each.agent}>
                {browserOf(each.agent)}
              </span>
            ),
          },
        ]}
        actions={(each) =>
          each.this_one ? (
            <span class="chip good">this one</span>
          ) : (
            <Confirm
              button="End"
              of={`the session from ${each.address}`}
              title="End this session?"
              says={<p>The browser that uses it has to sign in again.</p>}
              confirm="End session"
              work={() => call('DELETE', `/sessions/${part(each.id)}`).then(sessions.reload)}
            />
          )
        }
      />
    </section>
  );
}

function NewPassword({ done }: { readonly done: () => void }) {
  const password = useField('');
  const next = useField('');
  const [said, setSaid] = useState('');
  return (
    <details>
      <summary>Change your password</summary>
      <Form
        label="Change your password"
        submit="Change password"
        work={async () => {
          await call('PUT', '/password', { password: password.value, new_password: next.value });
          password.set('');
          next.set('');
          setSaid('Your password is changed, and your other sessions have ended.');
          done();
        }}
      >
        <Field label="Current password" type="password" {...password} complete="current-password" required />
        <Field
          label="New password"
          type="password"
          {...next}
          complete="new-password"
          hint="At least 10 characters."
          required
        />
      </Form>
      <p role="status">{said}</p>
    </details>
  );
}
