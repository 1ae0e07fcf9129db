// Overview: whether all is well, and how many records arrive.

import { useState } from 'preact/hooks';
import { type Account, part } from '../api.js';
import type { Answer } from '../commands.js';
import type { Line } from '../parts/chart.js';
import { Choice } from '../parts/fields.js';
import { later } from '../parts/later.js';
import { durationText, Loaded } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { onLink } from '../router.js';
import { FirstEvent } from './first-event.js';

const chart = later(() => import('../parts/chart.js'));

type Traffic = Answer<'showTraffic'>;

type OverviewOf = Answer<'showOverview'>;

/** An open page costs the service less than a hundredth of a core. */
const everyMs = 10_000;
const chartEveryMs = { hour: 30_000, week: 300_000 } as const;

export function Overview({ account }: { readonly account: Account }) {
  const path = `/accounts/${part(account.account_id)}`;
  const overview = useResource<OverviewOf>(`${path}/overview`, everyMs);
  const [appId, setAppId] = useState('');
  const [span, setSpan] = useState<'hour' | 'week'>('hour');
  const of = appId === '' ? '' : `&app_id=${part(appId)}`;
  const hour = useResource<Traffic>(`${path}/traffic?span=hour${of}`, chartEveryMs.hour);
  const week = useResource<Traffic>(
    span === 'week' ? `${path}/traffic?span=week${of}` : undefined,
    chartEveryMs.week,
  );
  const environment = account.environments.find(({ app_id, main }) =>
    appId === '' ? main : app_id === appId,
  );
  return (
    <>
      <div class="head">
        <h1>Overview</h1>
        {account.environments.length > 1 && (
          <Choice
            label="Environment"
            value={appId}
            set={setAppId}
            options={[
              ['', 'all environments'],
              ...account.environments.map(({ app_id, name }) => [app_id, name] as const),
            ]}
          />
        )}
      </div>
      <Loaded from={overview}>{(data, isOld) => <Wellness overview={data} isOld={isOld} />}</Loaded>
      {environment !== undefined && <FirstEvent key={environment.app_id} environment={environment} />}
      <section class="card">
        <h2>In the last whole minute</h2>
        <Loaded from={hour}>{(data) => <LastMinute traffic={data} />}</Loaded>
      </section>
      <section class="card">
        <div class="head">
          <h2>Records</h2>
          <Choice
            label="Over"
            value={span}
            set={setSpan}
            options={[
              ['hour', 'the last hour, by minutes'],
              ['week', 'the last week, by hours'],
            ]}
          />
        </div>
        <Loaded from={span === 'hour' ? hour : week}>
          {(data) => (
            <>
              <chart.Later>
                {({ Chart }) => <Chart shows="Records over time" of={data} linesOf={linesOf} />}
              </chart.Later>
              {isEmpty(data) && <p class="empty">No record arrived in this time.</p>}
            </>
          )}
        </Loaded>
      </section>
    </>
  );
}

function isEmpty(traffic: Traffic): boolean {
  return linesOf(traffic).every(({ counts }) => counts.every((count) => count === 0));
}

function linesOf(traffic: Traffic): readonly Line[] {
  return [
    { name: 'accepted', colour: 'good', counts: traffic.accepted },
    { name: 'repeated', colour: 'accent', counts: traffic.repeated },
    { name: 'limited', colour: 'warn', counts: traffic.limited },
    { name: 'rejected', colour: 'bad', counts: traffic.rejected },
  ];
}

/** An old answer says nothing about now. */
function Wellness({ overview, isOld }: { readonly overview: OverviewOf; readonly isOld: boolean }) {
  const { problems, queryable_seconds: seconds, deletions } = overview;
  const tone = isOld ? 'unknown' : problems.length === 0 ? 'good' : 'bad';
  return (
    <section class={`card wellness ${tone}`} aria-label="State">
      {isOld ? (
        <p class="sentence" role="status">
          Whether all is well is not known now.
        </p>
      ) : problems.length === 0 ? (
        <p class="sentence" role="status">
          All is well: records are accepted and stored.
        </p>
      ) : (
        <p class="sentence" role="alert">
          Not all is well: {problems.join('; ')}.
        </p>
      )}
      <p>
        {seconds > 0 && `A record can be queried ${secondsText(seconds)} after it is accepted. `}
        {deletions.pending === 0 ? (
          'No deletion is pending.'
        ) : (
          <a href="/deletions" onClick={onLink}>
            {pendingText(deletions)}
          </a>
        )}
      </p>
    </section>
  );
}

function pendingText({ pending, oldest_at }: OverviewOf['deletions']): string {
  const age = durationText((Date.now() - Date.parse(oldest_at ?? '')) / 1000);
  return pending === 1
    ? `1 deletion is pending, submitted ${age} ago.`
    : `${pending.toLocaleString()} deletions are pending; the oldest was submitted ${age} ago.`;
}

function secondsText(seconds: number): string {
  return `${seconds.toLocaleString(undefined, { maximumFractionDigits: seconds < 10 ? 1 : 0 })} s`;
}

const figures = [
  ['accepted', 'accepted', 'stored, or about to be'],
  ['repeated', 'repeated', 'sent before with the same key'],
  ['limited', 'limited', 'over a rate limit'],
  ['rejected', 'rejected', 'not as they should be'],
] as const;

function LastMinute({ traffic }: { readonly traffic: Traffic }) {
  return (
    <dl class="figures">
      {figures.map(([name, title, meaning]) => (
        <div key={name}>
          <dt>
            {title} <span class="muted">{meaning}</span>
          </dt>
          <dd>{(traffic[name].at(-1) ?? 0).toLocaleString()}</dd>
        </div>
      ))}
    </dl>
  );
}
