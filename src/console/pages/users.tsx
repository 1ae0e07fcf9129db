// Users: finds a user by a name, and shows what is held about them.

import { useState } from 'preact/hooks';
import type { UserKind } from '../../parsing/csv/user-list.js';
import { type Account, ApiError, call, type EnvironmentOfList, part } from '../api.js';
import type { Answer } from '../commands.js';
import { useEnvironment } from '../parts/environment.js';
import { Choice, Field } from '../parts/fields.js';
import { Form } from '../parts/form.js';
import { Loaded, Problem } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { usersText } from '../parts/user-list-form.js';
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
      <Suppressed account={account} />
    </>
  );
}

/** The suppressions of the account. Their users are kept as hashes, so there are no names to list. */
function Suppressed({ account }: { readonly account: Account }) {
  const counts = useResource<Answer<'showSuppressed'>>(
    `/accounts/${part(account.account_id)}/user_suppression`,
  );
  return (
    <section class="card" aria-label="Suppressed users">
      <h2>Suppressed users</h2>
      <Loaded from={counts}>
        {({ users, records }) => (
          <p>
            {users === 0 ? 'Nobody is suppressed.' : `${usersText(users)} suppressed.`}{' '}
            {records.toLocaleString()} of their records were not stored.{' '}
            <span class="muted">
              Their names are not kept, only hashes of them: find a user above to see whether they are
              suppressed.
            </span>
          </p>
        )}
      </Loaded>
    </section>
  );
}

type Asked = Readonly<Partial<Record<UserKind, string>>>;
type Found = {
  readonly asked: Asked;
  readonly name: string;
  readonly user: FoundUser;
};

function OfEnvironment(props: { readonly account: Account; readonly environment: EnvironmentOfList }) {
  const { account, environment } = props;
  const path = `/environments/${part(environment.app_id)}/user`;
  const [kind, setKind] = useState<UserKind>('identity');
  const [name, setName] = useState('');
  const [answer, setAnswer] = useState<Found | undefined>(undefined);
  const [fault, setFault] = useState('');
  const lookUp = async (of: UserKind, wanted: string) => {
    const asked: Asked = { [of]: wanted };
    const user = await call<FoundUser>('POST', path, { ...asked, events: false });
    setAnswer({ asked, name: wanted, user });
  };
  // What the page shows and its buttons act on must be the user that the field names.
  const find = async (of: UserKind, wanted: string) => {
    setAnswer(undefined);
    setFault('');
    await lookUp(of, wanted);
  };
  // Its button disappears with the user before, so the page says what went wrong.
  const findSimilar = async (identity: string) => {
    setKind('identity');
    setName(identity);
    await find('identity', identity).catch((error: unknown) => {
      if (!(error instanceof ApiError)) throw error;
      setFault(error.message);
    });
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
      <Problem text={fault} />
      {answer === undefined ? (
        <p class="empty">Find a user to see what is held about them in {environment.name}.</p>
      ) : (
        <UserDetails
          key={`${Object.keys(answer.asked)} ${answer.name}`}
          account={account}
          path={path}
          {...answer}
          findSimilar={findSimilar}
          reload={() => lookUp(Object.keys(answer.asked)[0] as UserKind, answer.name)}
        />
      )}
    </>
  );
}
