// A person who was looked up: where data about them is held, under which names and since when; who has similar names; and which requests
// concern them.

import { useState } from 'preact/hooks';
import { type Account, type Answer, call, type Deletion, part, withQuery } from '../api.js';
import { ActionButton, Button } from '../parts/form.js';
import { amountText, Loaded, Problem, Time } from '../parts/parts.js';
import { useLoad, useResource } from '../parts/resource.js';
import { Table } from '../parts/table.js';
import { onLink } from '../router.js';
import { may } from '../session.js';
import { stateText, toneOf } from './deletion-words.js';
import { PersonActions } from './person-actions.js';
import { type Asked, type FoundPerson, nameText } from './person-name.js';
import { UserDetails } from './user.js';

type Place = FoundPerson['places'][number];

export function PersonFound(props: {
  readonly account: Account;
  /** The path of the account's users. */
  readonly path: string;
  readonly asked: Asked;
  readonly name: string;
  readonly person: FoundPerson;
  readonly findSimilar: (identity: string) => Promise<void>;
  readonly reload: () => Promise<void>;
}) {
  const { account, path, asked, person } = props;
  const { names, places } = person;
  const [chosen, setChosen] = useState(0);
  const place = places[chosen];
  const [submitted, setSubmitted] = useState<readonly Deletion[]>([]);
  const identities = names.flatMap(({ identity }) => identity ?? []);
  return (
    <>
      <section class="card" aria-label="The user">
        <h2>{identities.length === 0 ? props.name : identities.join(' and ')}</h2>
        {identities.length > 1 && (
          <p class="problem">
            {props.name} is not the same user in every environment. Whatever you do here concerns all of them,
            in every environment.
          </p>
        )}
        <Suppressions names={names} account={account} />
        {places.length === 0 ? (
          <p role="status">
            Nothing is held about a user of this name in any environment of {account.name}. Names are compared
            letter by letter.
          </p>
        ) : (
          <Places places={places} account={account} chosen={chosen} choose={setChosen} />
        )}
        {asked.identity !== undefined && <Similar path={path} asked={asked} find={props.findSimilar} />}
        <PersonActions
          account={account}
          names={names}
          done={props.reload}
          submitted={(deletion) => setSubmitted((before) => [deletion, ...before])}
        />
      </section>
      <Requests path={path} asked={asked} submitted={submitted} />
      {place !== undefined && (
        <UserDetails
          key={`${place.app_id} ${place.identity} ${place.user_ids[0]}`}
          environment={environmentName(account, place.app_id)}
          path={`/environments/${part(place.app_id)}/user`}
          asked={askedOf(place)}
        />
      )}
    </>
  );
}

function askedOf({ identity, user_ids }: Place): Asked {
  return identity === null ? { user_id: user_ids[0] ?? '' } : { identity };
}

function environmentName({ environments }: Account, appId: string): string {
  return environments.find(({ app_id }) => app_id === appId)?.name ?? appId;
}

function Suppressions(props: { readonly names: FoundPerson['names']; readonly account: Account }) {
  const { names, account } = props;
  const suppressed = names.filter(({ suppression }) => suppression.suppressed);
  // All names of a merged user are suppressed together.
  const shown = suppressed.length === names.length ? suppressed.slice(0, 1) : suppressed;
  return (
    <>
      {shown.map((name) => (
        <p key={nameText(name)}>
          <span class="chip warn">suppressed</span> Nothing that is sent about{' '}
          {suppressed.length < names.length ? <strong>{nameText(name)}</strong> : 'this user'} is stored
          {name.suppression.since !== undefined && (
            <>
              {' '}
              since <Time at={name.suppression.since} />
              {name.suppression.app_ids === undefined && (
                <Why account={account} since={name.suppression.since} />
              )}
            </>
          )}
          {name.suppression.app_ids !== undefined &&
            `, in ${name.suppression.app_ids.map((id) => environmentName(account, id)).join(', ')}`}
          .
        </p>
      ))}
    </>
  );
}

/**
 * Who suppressed a user, and why. A suppression stores only its time, so this is known only if the audit log has exactly one change in the
 * minute before it. Names that are suppressed in single environments may have been joined by an identification, which is no such change.
 */
function Why({ account, since }: { readonly account: Account; readonly since: string }) {
  const from = new Date(Date.parse(since) - 60_000).toISOString();
  const of = {
    account_id: account.account_id,
    action: 'suppress_users,submit_deletion',
    since: from,
    until: since,
  };
  const { data = [] } = useResource<'listAudit'>(may('listAudit') ? withQuery('/audit', of) : undefined);
  const suppressing = data.filter(
    ({ action, details }) => action === 'suppress_users' || 'suppress' in details,
  );
  const [line] = suppressing;
  if (line === undefined || suppressing.length > 1) return null;
  const { reference } = line.details as { readonly reference?: string };
  return (
    <>
      {line.actor === 'person' && `, by ${line.actor_name}`}
      {reference !== undefined && `, “${reference}”`}
    </>
  );
}

const idsShown = 20;

function idsText({ identity, user_ids: ids, has_more_user_ids }: Place): string {
  if (identity === null) return '';
  const more = ids.length - idsShown;
  return [
    ids.slice(0, idsShown).join(', '),
    more > 0 || has_more_user_ids ? `and ${has_more_user_ids ? 'many' : more.toLocaleString()} more` : '',
  ]
    .filter((text) => text !== '')
    .join(' ');
}

function Places(props: {
  readonly places: FoundPerson['places'];
  readonly account: Account;
  readonly chosen: number;
  readonly choose: (place: number) => void;
}) {
  const { places, account, chosen, choose } = props;
  const rows = places.map((place, at) => ({ place, at }));
  const name = (place: Place) => environmentName(account, place.app_id);
  return (
    <Table
      caption="Where the user is"
      rows={rows}
      keyOf={({ at }) => String(at)}
      empty=""
      columns={[
        { title: 'Environment', text: ({ place }) => name(place) },
        {
          title: 'Known as',
          text: ({ place }) => place.identity ?? `user id ${place.user_ids[0]}, anonymous`,
          cell: ({ place }) =>
            place.identity === null ? (
              `user id ${place.user_ids[0]}, anonymous`
            ) : (
              <code class="exact">{place.identity}</code>
            ),
        },
        { title: 'Merged from user ids', text: ({ place }) => idsText(place) },
        { title: 'Events', text: ({ place }) => place.events, number: true },
        { title: 'Since', time: ({ place }) => place.first_seen, to: 'day' },
        { title: 'Last seen', time: ({ place }) => place.last_seen, to: 'day' },
      ]}
      actions={
        places.length > 1 &&
        (({ place, at }) =>
          at === chosen ? (
            <span class="chip accent">shown below</span>
          ) : (
            <Button kind="small" text="Show" label={`Show what ${name(place)} has`} act={() => choose(at)} />
          ))
      }
    />
  );
}

function Similar(props: {
  readonly path: string;
  readonly asked: Asked;
  readonly find: (identity: string) => Promise<void>;
}) {
  const { path, asked } = props;
  const { data, fault } = useLoad(`${path} ${JSON.stringify(asked)} similar`, () =>
    call<'findSimilarUsersEverywhere'>('POST', `${path}/similar`, asked),
  );
  if (fault !== '') return <Problem text={`Similar users could not be looked up: ${fault}`} />;
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

type OfUser = Answer<'findRequestsOfUser'>['deletions'][number];

/** The requests that concern the person. `submitted`: those that were submitted since the person was looked up. */
function Requests(props: {
  readonly path: string;
  readonly asked: Asked;
  readonly submitted: readonly Deletion[];
}) {
  const { path, asked, submitted } = props;
  const requests = useLoad(`${path} ${JSON.stringify(asked)} requests`, () =>
    call<'findRequestsOfUser'>('POST', `${path}/requests`, asked),
  );
  return (
    <section class="card" aria-label="Requests that concern the user">
      <h2>Requests that concern this user</h2>
      <Loaded from={requests}>
        {({ deletions, exports, has_more: hasMore }) => (
          <>
            <Table
              caption="Deletions of this user"
              rows={[...submitted, ...deletions] as readonly OfUser[]}
              keyOf={({ deletion_request_id }) => deletion_request_id}
              empty="No deletion of the last 30 days named this user."
              columns={[
                { title: 'Submitted', time: (each) => each.submitted_at },
                { title: 'State', text: stateText, cell: (each) => <Progress of={each} /> },
                { title: 'Users in it', text: ({ targets }) => targets, number: true },
                { title: 'Records of this user', text: ({ rows }) => rows ?? '', number: true },
                { title: 'Reference', text: ({ reference }) => reference ?? '' },
              ]}
            />
            {hasMore && <p class="muted">There are older deletions, which were not looked at.</p>}
            <p>
              {exports.length === 0
                ? 'No export that is kept now names this user. '
                : `${amountText(exports.length, 'export that is kept now names', 'exports that are kept now name')} this user. `}
              <a href="/deletions" onClick={onLink}>
                Show deletions and exports
              </a>
            </p>
          </>
        )}
      </Loaded>
    </section>
  );
}

const progressEveryMs = 2_000;

/** The state of a deletion. While it is pending, it is requested repeatedly, which leaves no line in the audit log. */
function Progress({ of }: { readonly of: Deletion }) {
  const [complete, setComplete] = useState(of.status === 'complete' ? of : undefined);
  const { data } = useLoad(
    complete === undefined ? of.deletion_request_id : undefined,
    async () => {
      const now = await call<'showDeletion'>('GET', `/deletions/${part(of.deletion_request_id)}`);
      if (now.status === 'complete') setComplete(now);
      return now;
    },
    progressEveryMs,
  );
  const shown = complete ?? data ?? of;
  return <span class={`chip ${toneOf(shown)}`}>{stateText(shown)}</span>;
}
