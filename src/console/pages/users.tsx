// Users: finds a user by a name, and shows what is held about them.

import { useState } from 'preact/hooks';
import type { UserKind } from '../../csv/user-list.js';
import { type Account, call, type EnvironmentOfList, part } from '../api.js';
import { useEnvironment } from '../parts/environment.js';
import { Choice, Field } from '../parts/fields.js';
import { Form } from '../parts/form.js';
import { type FoundUser, UserDetails } from './user.js';

export function Users({ account }: { readonly account: Account }) {
  const { environment, field } = useEnvironment(account);
  return (
    <>
      <div class="head">
        <h1>Users</h1>
        {field}
      </div>
      {environment !== undefined && (
        <OfEnvironment key={environment.app_id} account={account} environment={environment} />
      )}
    </>
  );
}

type Asked = Readonly<Partial<Record<UserKind, string>>>;
type Answer = {
  readonly asked: Asked;
  readonly name: string;
  readonly user: FoundUser;
};

function OfEnvironment(props: { readonly account: Account; readonly environment: EnvironmentOfList }) {
  const { account, environment } = props;
  const path = `/environments/${part(environment.app_id)}/user`;
  const [kind, setKind] = useState<UserKind>('identity');
  const [name, setName] = useState('');
  const [answer, setAnswer] = useState<Answer | undefined>(undefined);
  const find = async (of: UserKind, wanted: string) => {
    const asked: Asked = { [of]: wanted };
    setAnswer({
      asked,
      name: wanted,
      user: await call<FoundUser>('POST', path, { ...asked, events: false }),
    });
  };
  const findSimilar = (identity: string) => {
    setKind('identity');
    setName(identity);
    return find('identity', identity);
  };
  return (
    <>
      <section class="card">
        <Form label="Find a user" submit="Find" inline work={() => find(kind, name)}>
          <Choice
            label="By"
            value={kind}
            set={setKind}
            options={[
              ['identity', 'identity'],
              ['user_id', 'user id'],
              ['anonymous_id', 'anonymous id'],
            ]}
          />
          <Field
            label="Name"
            value={name}
            set={setName}
            hint="Exactly as it was sent. Each look-up is noted in the audit log, without the name."
            required
          />
        </Form>
      </section>
      {answer === undefined ? (
        <p class="empty">Find a user to see what is held about them in {environment.name}.</p>
      ) : (
        <UserDetails
          key={`${Object.keys(answer.asked)} ${answer.name}`}
          account={account}
          path={path}
          {...answer}
          findSimilar={findSimilar}
          reload={() => find(Object.keys(answer.asked)[0] as UserKind, answer.name)}
        />
      )}
    </>
  );
}
