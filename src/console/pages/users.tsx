// Users: finds a person in all environments of the account, shows what is held about them, and offers what can be done.

import { useRef, useState } from 'preact/hooks';
import type { UserKind } from '../../parsing/csv/user-list.js';
import { type Account, ApiError, call, part } from '../api.js';
import { Choice, Field } from '../parts/fields.js';
import { Form } from '../parts/form.js';
import { Problem } from '../parts/parts.js';
import { PersonFound } from './person.js';
import type { FoundPerson } from './person-name.js';
import { Suppressed } from './suppressed.js';

/** The name that was entered, and its kind. */
type Asked = { readonly kind: UserKind; readonly name: string };

export function Users({ account }: { readonly account: Account }) {
  const path = `/accounts/${part(account.account_id)}/user`;
  const [asked, setAsked] = useState<Asked>({ kind: 'identity', name: '' });
  const [answer, setAnswer] = useState<{ readonly of: Asked; readonly person: FoundPerson } | undefined>(
    undefined,
  );
  const [fault, setFault] = useState('');
  const latest = useRef(0);
  const lookUp = async (of: Asked) => {
    latest.current += 1;
    const own = latest.current;
    const person = await call<'lookUpUserEverywhere'>('POST', path, { [of.kind]: of.name });
    if (own === latest.current) setAnswer({ of, person });
  };
  // The page must show the person whom the field names, and its buttons must act on that person.
  const find = async (of: Asked) => {
    setAnswer(undefined);
    setFault('');
    await lookUp(of);
  };
  // The button disappears together with the person, so the page shows the error.
  const showFault = (error: unknown) => {
    if (!(error instanceof ApiError)) throw error;
    setAnswer(undefined);
    setFault(error.message);
  };
  const findSimilar = async (identity: string) => {
    const of: Asked = { kind: 'identity', name: identity };
    setAsked(of);
    await find(of).catch(showFault);
  };
  return (
    <>
      <h1>Users</h1>
      <section class="card">
        <Form label="Find a user" submit="Find" inline work={() => find(asked)}>
          <Choice
            label="By"
            value={asked.kind}
            set={(kind) => setAsked({ ...asked, kind })}
            options={[
              ['identity', 'identity, such as an e-mail address'],
              ['user_id', 'user id (a number)'],
              ['anonymous_id', 'anonymous id of a browser or phone'],
            ]}
          />
          <Field
            label="Name"
            value={asked.name}
            set={(name) => setAsked({ ...asked, name })}
            hint="Exactly as it was sent. Each look-up is noted in the audit log, without the name."
            required
          />
        </Form>
      </section>
      <Problem text={fault} />
      {answer === undefined ? (
        <p class="empty">
          Find a person to see what is held about them in all environments of {account.name}, which requests
          concern them, and to export, suppress or delete them.
        </p>
      ) : (
        <PersonFound
          key={`${answer.of.kind} ${answer.of.name}`}
          account={account}
          path={path}
          asked={{ [answer.of.kind]: answer.of.name }}
          name={answer.of.name}
          person={answer.person}
          findSimilar={findSimilar}
          reload={() => lookUp(answer.of).catch(showFault)}
        />
      )}
      <Suppressed account={account} />
    </>
  );
}
