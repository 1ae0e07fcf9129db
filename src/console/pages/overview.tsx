// Overview: whether all is well, what needs attention, how many records arrive, and which were refused.

import { type Account, type Answer, part, withQuery } from '../api.js';
import type { Line } from '../parts/chart.js';
import { Choice, useField } from '../parts/fields.js';
import { later } from '../parts/later.js';
import { Loaded } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { type Span, SpanChoice } from '../parts/span.js';
import { Table } from '../parts/table.js';
import { onLink } from '../router.js';
import { meaningOf } from '../words.js';
import { FirstEvent } from './first-event.js';
import { Wellness } from './wellness.js';

const chart = later(() => import('../parts/chart.js'));

type Traffic = Answer<'showTraffic'>;

/** At this interval an open page costs the service less than a hundredth of a core. */
const everyMs = 10_000;
const chartEveryMs = { hour: 30_000, week: 60_000 } as const;

export function Overview({ account }: { readonly account: Account }) {
  const path = `/accounts/${part(account.account_id)}`;
  const overview = useResource<'showOverview'>(`${path}/overview`, everyMs);
  const appId = useField('');
  const span = useField<Span>('hour');
  const trafficOf = (span: Span) => withQuery(`${path}/traffic`, { span, app_id: appId.value });
  const week = useResource<'showTraffic'>(trafficOf('week'), chartEveryMs.week);
  const hour = useResource<'showTraffic'>(
    span.value === 'hour' ? trafficOf('hour') : undefined,
    chartEveryMs.hour,
  );
  const environment = account.environments.find(({ app_id, main }) =>
    appId.value === '' ? main : app_id === appId.value,
  );
  return (
    <>
      <div class="head">
        <h1>Overview</h1>
        {account.environments.length > 1 && (
          <Choice
            label="Environment"
            {...appId}
            options={[
              ['', 'all environments'],
              ...account.environments.map(({ app_id, name }) => [app_id, name] as const),
            ]}
          />
        )}
      </div>
      <Loaded from={overview}>
        {(data, isOld) => <Wellness overview={data} isOld={isOld} path={path} />}
      </Loaded>
      {environment !== undefined && <FirstEvent key={environment.app_id} environment={environment} />}
      <section class="card">
        <h2>Records that were accepted</h2>
        <Loaded from={week}>{(data) => <Days traffic={data} />}</Loaded>
      </section>
      <section class="card">
        <div class="head">
          <h2>Records over time</h2>
          <SpanChoice {...span} />
        </div>
        <Loaded from={span.value === 'hour' ? hour : week}>
          {(data) => (
            <>
              <chart.Later>
                {({ Chart }) => <Chart shows="Records over time" of={data} linesOf={linesOf} />}
              </chart.Later>
              {isEmpty(data) && (
                <p class="empty">No record arrived in this time. The last minute is counted later.</p>
              )}
            </>
          )}
        </Loaded>
      </section>
      <section class="card">
        <h2>Why records were refused in the last 7 days</h2>
        <Loaded from={week}>{(data) => <Refused traffic={data} />}</Loaded>
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
    { name: 'over a limit', colour: 'warn', counts: traffic.limited },
    { name: 'refused', colour: 'bad', counts: traffic.rejected },
  ];
}

function sumOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Today compared with yesterday and with the week, in days of the reader's time zone. */
function Days({ traffic }: { readonly traffic: Traffic }) {
  const { at, accepted, limited, rejected, step_seconds: step } = traffic;
  const now = new Date();
  // The same time of day, even if the clocks were changed in between.
  const before = new Date(now);
  before.setDate(before.getDate() - 1);
  const dayOf = (seconds: number) => new Date(seconds * 1000).toDateString();
  const ofDay = (day: string, share: (begin: number) => number) =>
    sumOf(
      accepted.map((count, index) => (dayOf(at[index] ?? 0) === day ? count * share(at[index] ?? 0) : 0)),
    );
  const yesterday = before.toDateString();
  const todays = ofDay(now.toDateString(), () => 1);
  // Yesterday up to the same time. Counts are by the hour, so a part of the last hour is counted proportionally.
  const byNow = ofDay(yesterday, (begin) =>
    Math.min(1, Math.max(0, (before.getTime() / 1000 - begin) / step)),
  );
  const refused = sumOf(rejected) + sumOf(limited);
  const all = sumOf(accepted);
  const figures: readonly (readonly [title: string, count: number, hint: string])[] = [
    ['Today', todays, changeText(todays, byNow)],
    ['Yesterday', ofDay(yesterday, () => 1), ''],
    ['In 7 days', all, ''],
    ['Refused in 7 days', refused, refused === 0 ? '' : `${shareText(refused / (all + refused))} of all`],
  ];
  return (
    <dl class="figures">
      {figures.map(([title, count, hint]) => (
        <div key={title}>
          <dt>{title}</dt>
          <dd>
            {count.toLocaleString()} <span class="muted">{hint}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

function shareText(share: number): string {
  return share.toLocaleString(undefined, { style: 'percent', maximumSignificantDigits: 2 });
}

function changeText(now: number, before: number): string {
  if (before < 1) return '';
  const change = (now - before) / before;
  if (Math.abs(change) < 0.005) return 'as many as yesterday at this time';
  return `${shareText(Math.abs(change))} ${change > 0 ? 'more' : 'fewer'} than yesterday at this time`;
}

/** How many reasons are shown; Data quality has the others. */
const reasonsShown = 5;

function Refused({ traffic: { rejected_for: reasons, limited } }: { readonly traffic: Traffic }) {
  const overLimit = sumOf(limited);
  const rows = [
    ...reasons.slice(0, reasonsShown),
    ...(overLimit === 0 ? [] : [{ code: 'rate_limited', field: null, records: overLimit }]),
  ];
  return (
    <>
      <Table
        caption="Reasons"
        rows={rows}
        keyOf={({ code, field }) => `${code} ${field}`}
        empty="No record was refused."
        columns={[
          { title: 'Why', text: ({ code }) => meaningOf(code) },
          { title: 'Field', text: ({ field }) => field ?? '' },
          { title: 'Records', text: ({ records }) => records, number: true },
        ]}
      />
      {rows.length > 0 && (
        <a href="/data-quality" onClick={onLink}>
          Show the last ones under Data quality
        </a>
      )}
    </>
  );
}
