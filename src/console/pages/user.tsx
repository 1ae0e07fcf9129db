// What is held about one user in an environment, and what can be done with the user.

import { useState } from 'preact/hooks';
import { type Account, call, part } from '../api.js';
import type { Answer } from '../commands.js';
import { Confirm } from '../parts/dialog.js';
import { ActionButton } from '../parts/form.js';
import { Time } from '../parts/parts.js';
import { type Resource, useLoad } from '../parts/resource.js';
import { Table } from '../parts/table.js';
import { go } from '../router.js';
import { may } from '../session.js';
import { TimeLine } from './time-line.js';

export type FoundUser = Answer<'lookUpUser'>;

type EventCounts = Answer<'countUserEvents'>;

export function UserDetails(props: {
  readonly account: Account;
  /** The path of the environment's users. */
  readonly path: string;
  readonly asked: Readonly<Record<string, string>>;
  readonly name: string;
  readonly user: FoundUser;
  readonly findSimilar: (identity: string) => Promise<void>;
  readonly reload: () => Promise<void>;
}) {
  const { account, path, asked, name, user, findSimilar, reload } = props;
  // The events come first. Beside all other questions ClickHouse would take three times as long for them.
  const [hasShown, setHasShown] = useState(!user.found);
  const counts = useLoad(user.found && hasShown ? `${path} ${JSON.stringify(asked)} counts` : undefined, () =>
    call<EventCounts>('POST', `${path}/event-counts`, asked),
  );
  return (
    <>
      <section class="card" aria-label="The user">
        <h2 class="name">{user.identity ?? name}</h2>
        {user.suppression.suppressed && (
          <p>
            <span class="chip warn">suppressed</span> No record of this user is stored
            {user.suppression.since !== undefined && (
              <>
                {' '}
                since <Time at={user.suppression.since} />
              </>
            )}
            .
          </p>
        )}
        {user.found ? (
          <Facts user={user} counts={counts} />
        ) : (
          <p role="status">
            Nothing is held about a user of this name in this environment. Names are compared letter by
            letter.
          </p>
        )}
        {asked.identity !== undefined && hasShown && <Similar path={path} asked={asked} find={findSimilar} />}
        <Actions account={account} asked={asked} name={name} user={user} reload={reload} />
      </section>
      {user.found && (
        <section class="card">
          <h2>Properties</h2>
          <Table
            caption="Properties"
            rows={Object.entries(user.properties)}
            keyOf={([key]) => key}
            empty="No property of this user was sent. Senders set them by the user properties endpoint; see API."
            columns={[
              { title: 'Property', text: ([key]) => key },
              { title: 'Value', text: ([, value]) => value },
            ]}
          />
        </section>
      )}
      {user.found && (
        <TimeLine
          path={path}
          asked={asked}
          events={counts.data?.events ?? []}
          onShown={() => setHasShown(true)}
        />
      )}
    </>
  );
}

function Facts({ user, counts }: { readonly user: FoundUser; readonly counts: Resource<EventCounts> }) {
  const { user_ids: ids } = user;
  const events = counts.data?.events;
  const count = events?.reduce((sum, each) => sum + each.count, 0);
  const first = events?.map(({ first_seen }) => first_seen).sort()[0];
  const last = events
    ?.map(({ last_seen }) => last_seen)
    .sort()
    .at(-1);
  return (
    <dl class="facts">
      {user.identity === null && (
        <>
          <dt>Identity</dt>
          <dd>none: an anonymous user</dd>
        </>
      )}
      <dt>User ids</dt>
      <dd>
        {ids.length === 0 ? 'none' : ids.slice(0, idsShown).join(', ')}
        {(ids.length > idsShown || user.has_more_user_ids) &&
          ` and ${user.has_more_user_ids ? 'many' : (ids.length - idsShown).toLocaleString()} more`}
      </dd>
      <dt>Events</dt>
      <dd>
        {count?.toLocaleString() ?? (counts.fault === '' && <span class="muted">being counted…</span>)}
        {counts.fault !== '' && (
          <span class="problem" role="alert">
            {counts.fault}{' '}
            <button type="button" class="small" onClick={counts.reload}>
              Count again
            </button>
          </span>
        )}
      </dd>
      {first !== undefined && last !== undefined && (
        <>
          <dt>First seen</dt>
          <dd>
            <Time at={first} />
          </dd>
          <dt>Last seen</dt>
          <dd>
            <Time at={last} />
          </dd>
        </>
      )}
    </dl>
  );
}

const idsShown = 20;

function Similar(props: {
  readonly path: string;
  readonly asked: Readonly<Record<string, string>>;
  readonly find: (identity: string) => Promise<void>;
}) {
  const { path, asked } = props;
  const { data } = useLoad(`${path} ${JSON.stringify(asked)} similar`, () =>
    call<Answer<'findSimilarUsers'>>('POST', `${path}/similar`, asked),
  );
  if (data === undefined || data.similar.length === 0) return null;
  return (
    <div class="similar">
      <p>These look like this one, but are other users:</p>
      <ul class="others">
        {data.similar.map((identity) => (
          <li key={identity}>
            <ActionButton
              button={identity}
              label={`Show ${identity}`}
              small
              work={() => props.find(identity)}
            />
          </li>
        ))}
      </ul>
    </div>
  );
}

/** They act by the identity if there is one, since it names the user in every environment. */
function Actions(props: {
  readonly account: Account;
  readonly asked: Readonly<Record<string, string>>;
  readonly name: string;
  readonly user: FoundUser;
  readonly reload: () => Promise<void>;
}) {
  const { account, user, reload } = props;
  const [said, setSaid] = useState('');
  const users = [user.identity === null ? props.asked : { identity: user.identity }];
  const of = `/accounts/${part(account.account_id)}`;
  const name = <strong>{user.identity ?? props.name}</strong>;
  const { suppressed } = user.suppression;
  return (
    <>
      <div class="buttons">
        {may('submitExport') && (
          <Confirm
            button="Export"
            title="Export this user?"
            calm
            says={
              <p>
                Everything that is held about {name}, in every environment of {account.name}, is kept ready
                for download for a day, under Deletions. The audit log notes that you requested it.
              </p>
            }
            confirm="Export user"
            work={async () => {
              await call('POST', `${of}/user_exports`, { users });
              setSaid('The export is requested. Once it is ready, you find it under Deletions.');
            }}
          />
        )}
        {may('suppressUsers') && (
          <Confirm
            button={suppressed ? 'Free' : 'Suppress'}
            title={suppressed ? 'Free this user?' : 'Suppress this user?'}
            says={
              suppressed ? (
                <p>
                  From now on, what is sent about {name} is stored again, in every environment of{' '}
                  {account.name}.
                </p>
              ) : (
                <p>
                  From now on, nothing that is sent about {name} is stored, in every environment of{' '}
                  {account.name}. What is already stored stays. The senders are not told.
                </p>
              )
            }
            confirm={suppressed ? 'Free user' : 'Suppress user'}
            work={async () => {
              await call('POST', `${of}/user_suppression`, { users, suppress: !suppressed });
              await reload();
            }}
          />
        )}
        {may('submitDeletion') && (
          <Confirm
            button="Delete user"
            grave
            title="Delete this user?"
            says={
              <p>
                All events, properties and identifications of {name}, and of the user ids that are merged with
                it, are deleted in every environment of {account.name}. This cannot be undone. What is sent
                later is stored
                {suppressed ? ' only once the user is freed.' : '. To prevent that, suppress the user, too.'}
              </p>
            }
            confirm="Delete this user"
            work={async () => {
              await call('POST', `${of}/user_deletion`, { users });
              setSaid('The deletion is submitted. Under Deletions you see when it is complete.');
            }}
          />
        )}
      </div>
      <p role="status">
        {said}{' '}
        {said !== '' && (
          <button type="button" class="small" onClick={() => go('/deletions')}>
            Show deletions and exports
          </button>
        )}
      </p>
    </>
  );
}
