// Data quality: which records of an environment were refused, corrected or ignored.

import { type Account, type Answer, type EnvironmentOfList, part } from '../api.js';
import { Chart, type Colour, type Line } from '../parts/chart.js';
import { useEnvironment } from '../parts/environment.js';
import { useField } from '../parts/fields.js';
import { Help, Loaded } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { type Span, SpanChoice } from '../parts/span.js';
import { LoadedTable, Table } from '../parts/table.js';
import { meaningOf } from '../words.js';
import { Books } from './books.js';
import { EventNames } from './event-names.js';

type Rejections = Answer<'showRejections'>;

const everyMs = 5_000;
const chartEveryMs = { hour: 30_000, week: 300_000 } as const;

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
          <Books key={`books ${environment.app_id}`} environment={environment} />
          <EventNames key={`names ${environment.app_id}`} environment={environment} />
        </>
      )}
    </>
  );
}

function OfEnvironment({ environment }: { readonly environment: EnvironmentOfList }) {
  const path = `/environments/${part(environment.app_id)}`;
  const rejected = useResource<'listRejected'>(`${path}/rejected`, everyMs);
  const stats = useResource<'showStats'>(`${path}/stats`, everyMs);
  const span = useField<Span>('week');
  const rejections = useResource<'showRejections'>(
    `${path}/rejections?span=${span.value}`,
    chartEveryMs[span.value],
  );
  return (
    <>
      <section class="card">
        <div class="head">
          <h2>Why records were refused</h2>
          <SpanChoice {...span} />
        </div>
        <Help page="src/http/README.md#errors" about="reasons">
          Senders were told why, and nothing of these records is stored.
        </Help>
        <Loaded from={rejections}>{(data) => <Reasons rejections={data} />}</Loaded>
        <LoadedTable
          from={rejected}
          caption="The last records that were refused"
          first={10}
          keyOf={({ time, endpoint, index, code, field }) => `${time} ${endpoint} ${index} ${code} ${field}`}
          empty="No record was refused lately. A note of a refused record says what was wrong and holds no value of it."
          columns={[
            { title: 'When', time: (each) => each.time, to: 'second' },
            {
              title: 'Why',
              text: (each) => each.code,
              cell: (each) => (
                <>
                  {meaningOf(each.code)} <code class="muted">{each.code}</code>
                </>
              ),
            },
            {
              title: 'Field',
              text: (each) => each.field ?? '',
              cell: (each) =>
                each.field === null ? <span class="muted">the whole record</span> : <code>{each.field}</code>,
            },
            { title: 'Sent to', text: (each) => each.endpoint },
            {
              title: 'Place in the request',
              text: (each) => each.index ?? '',
            },
            { title: 'Bytes', text: (each) => each.bytes, number: true },
          ]}
        />
      </section>
      <section class="card">
        <h2>What else was not as it should be</h2>
        <Loaded from={stats}>{(data) => <Counts stats={data} />}</Loaded>
      </section>
    </>
  );
}

/** A chart with one line for each of the most frequent reasons, and one for all others together. */
function Reasons({ rejections }: { readonly rejections: Rejections }) {
  if (rejections.reasons.length === 0) return <p class="muted">Nothing was refused in this time.</p>;
  return <Chart shows="Refused records over time" of={rejections} linesOf={linesOf} />;
}

const colours: readonly Colour[] = ['bad', 'warn', 'accent', 'good'];

function linesOf({ at, reasons }: Rejections): readonly Line[] {
  const first = reasons.slice(0, colours.length).filter(({ code }) => code !== null);
  const others = reasons.slice(first.length);
  return [
    ...first.map(({ code, field, counts }, index) => ({
      name: field === null ? String(code) : `${code} in ${field}`,
      colour: colours[index] ?? 'plain',
      counts,
    })),
    ...(others.length === 0
      ? []
      : [
          {
            name: 'for other reasons',
            colour: 'plain' as const,
            counts: at.map((_, index) => others.reduce((sum, { counts }) => sum + (counts[index] ?? 0), 0)),
          },
        ]),
  ];
}

const counted = {
  ignored_fields: 'Unknown fields, which were ignored',
  differing_repeats: 'Repeats that differed from the first record with their key',
  unauthorized: 'Requests without the required write key',
  suppressed: 'Records of suppressed users, which were not stored',
} as const;

function Counts({ stats }: { readonly stats: Answer<'showStats'> }) {
  const others = Object.entries(counted).map(
    ([name, what]) => [what, stats[name as keyof typeof counted]] as const,
  );
  const mended = Object.entries(stats.mended).map(
    ([name, count]) => [`Corrected: ${name.replaceAll('_', ' ')}`, count] as const,
  );
  const rows = [...others, ...mended].filter(([, count]) => count > 0);
  return (
    <Table
      caption="What was corrected, ignored, repeated or suppressed"
      rows={rows}
      keyOf={([what]) => what}
      empty="Nothing: all records were as they should be."
      columns={[
        { title: 'What', text: ([what]) => what },
        {
          title: 'Since the environment was created',
          text: ([, count]) => count,
          number: true,
        },
      ]}
    />
  );
}
