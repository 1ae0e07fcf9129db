// Data quality: what of an environment's records was refused, mended or ignored; for operators also the rows that ClickHouse
// refused.

import { useState } from 'preact/hooks';
import { type Account, call, type EnvironmentOfList, part } from '../api.js';
import { useEnvironment } from '../parts/environment.js';
import { Form, Loaded, Table, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { may } from '../session.js';
import { EventNames } from './event-names.js';

type Stats = {
  readonly mended: Readonly<Record<string, number>>;
  readonly ignored_fields: number;
  readonly unauthorized: number;
  readonly differing_repeats: number;
};

type Rejected = {
  readonly time: string;
  readonly endpoint: string;
  readonly code: string;
  readonly field: string | null;
  readonly bytes: number;
  readonly index: number | null;
};

const everyMs = 5_000;

export function DataQuality({ account }: { readonly account: Account }) {
  const { environment, field } = useEnvironment(account);
  return (
    <>
      <div class="head">
        <h1>Data quality</h1>
        {field}
      </div>
      {environment !== undefined && (
        <>
          <OfEnvironment key={environment.app_id} environment={environment} />
          <EventNames key={`names ${environment.app_id}`} environment={environment} />
        </>
      )}
      {may('listFailed') && <FailedRows />}
    </>
  );
}

function OfEnvironment({ environment }: { readonly environment: EnvironmentOfList }) {
  const path = `/environments/${part(environment.app_id)}`;
  const rejected = useResource<Rejected[]>(`${path}/rejected`, everyMs);
  const stats = useResource<Stats>(`${path}/stats`, everyMs);
  return (
    <>
      <section class="card">
        <h2>Why records were refused</h2>
        <Loaded from={rejected}>
          {(data) => (
            <>
              {data.length > 0 && <Reasons rejected={data} />}
              <Table
                caption="The last records that were refused"
                rows={data}
                first={10}
                keyOf={({ time, endpoint, index, code, field }) =>
                  `${time} ${endpoint} ${index} ${code} ${field}`
                }
                empty="No record was refused lately. Notes of refused records name what was wrong, never a value."
                columns={[
                  { title: 'When', text: (each) => each.time, cell: (each) => <Time at={each.time} /> },
                  { title: 'Why', text: (each) => each.code, cell: (each) => <code>{each.code}</code> },
                  {
                    title: 'Field',
                    text: (each) => each.field ?? '',
                    cell: (each) =>
                      each.field === null ? (
                        <span class="muted">the whole record</span>
                      ) : (
                        <code>{each.field}</code>
                      ),
                  },
                  { title: 'Sent to', text: (each) => each.endpoint },
                  {
                    title: 'Place in the request',
                    text: (each) => (each.index === null ? '' : String(each.index)),
                  },
                  { title: 'Bytes', text: (each) => each.bytes.toLocaleString(), number: true },
                ]}
              />
            </>
          )}
        </Loaded>
      </section>
      <section class="card">
        <h2>What was taken although it was not as it should be</h2>
        <Loaded from={stats}>{(data) => <Counts stats={data} />}</Loaded>
      </section>
    </>
  );
}

/** How many were refused for each reason, the most frequent first. */
function Reasons({ rejected }: { readonly rejected: readonly Rejected[] }) {
  const counts = new Map<string, number>();
  for (const { code, field } of rejected) {
    const reason = field === null ? code : `${code} in ${field}`;
    counts.set(reason, (counts.get(reason) ?? 0) + 1);
  }
  const most = [...counts].sort(([, a], [, b]) => b - a).slice(0, 5);
  return (
    <ul class="bars">
      {most.map(([reason, count]) => (
        <li key={reason}>
          <span>{reason}</span>
          <meter min={0} max={rejected.length} value={count} aria-label={reason} />
          <span class="number">{count.toLocaleString()}</span>
        </li>
      ))}
    </ul>
  );
}

const counted: Readonly<Record<string, string>> = {
  ignored_fields: 'Fields that the service does not know, and ignored',
  differing_repeats: 'Repeats that said something else than the first record with their key',
  unauthorized: 'Requests without the write key that is required',
};

function Counts({ stats }: { readonly stats: Stats }) {
  const others = (['ignored_fields', 'differing_repeats', 'unauthorized'] as const).map(
    (name) => [counted[name] ?? name, stats[name]] as const,
  );
  const mended = Object.entries(stats.mended).map(
    ([name, count]) => [`Mended: ${name.replaceAll('_', ' ')}`, count] as const,
  );
  const rows = [...others, ...mended].filter(([, count]) => count > 0);
  return (
    <Table
      caption="What was mended, ignored or repeated"
      rows={rows}
      keyOf={([what]) => what}
      empty="Nothing: all records were as they should be."
      columns={[
        { title: 'What', text: ([what]) => what },
        {
          title: 'Since the environment was created',
          text: ([, count]) => count.toLocaleString(),
          number: true,
        },
      ]}
    />
  );
}

type FailedRow = {
  readonly table_name: string;
  readonly segment: string;
  readonly line: number;
  readonly app_id: string;
  readonly bytes: number;
  readonly error_code: number;
  readonly error: string;
};

function FailedRows() {
  const failed = useResource<FailedRow[]>('/failed');
  const [said, setSaid] = useState('');
  return (
    <section class="card">
      <h2>Rows that ClickHouse refused, in all accounts</h2>
      <Loaded from={failed}>
        {(data) => (
          <>
            <Table
              caption="Rows that ClickHouse refused"
              rows={data}
              keyOf={({ table_name, segment, line }) => `${table_name} ${segment} ${line}`}
              empty="None: ClickHouse has taken every row."
              columns={[
                { title: 'Table', text: (each) => each.table_name },
                { title: 'App ID', text: (each) => each.app_id, cell: (each) => <code>{each.app_id}</code> },
                { title: 'Error', text: (each) => `${each.error_code} ${each.error}` },
                { title: 'Bytes', text: (each) => each.bytes.toLocaleString(), number: true },
              ]}
            />
            {data.length > 0 && (
              <Form
                label="Send failed rows again"
                submit="Send again"
                inline
                work={async () => {
                  const { retried, left } = await call<{ retried: number; left: number }>(
                    'POST',
                    '/failed/retry',
                  );
                  setSaid(`${retried} stored, ${left} left.`);
                  failed.reload();
                }}
              >
                <p role="status">{said || 'Once the cause is corrected, they can be sent again.'}</p>
              </Form>
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}
