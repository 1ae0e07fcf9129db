// The books of an environment: what happened to every record that it accepted on a day.

import { type Answer, type EnvironmentOfList, part } from '../api.js';
import { Field, useField } from '../parts/fields.js';
import { Help, Loaded, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { Table } from '../parts/table.js';
import { imbalanceOf } from '../words.js';

type Day = Answer<'showLedger'>;

const everyMs = 60_000;
const terms = {
  stored: 'Stored',
  repeats: 'Repeats of an earlier record',
  suppressed: 'Of suppressed users, not stored',
  deleted: 'Deleted with their users',
  expired: 'Deleted when their time was over',
  failed: 'Refused by ClickHouse, kept aside',
  waiting: 'Waiting to be stored',
} as const;

export function Books({ environment }: { readonly environment: EnvironmentOfList }) {
  const day = useField(() => new Date().toISOString().slice(0, 10));
  const isDay = /^\d{4}-\d{2}-\d{2}$/.test(day.value);
  const books = useResource<'showLedger'>(
    isDay ? `/environments/${part(environment.app_id)}/ledger?day=${day.value}` : undefined,
    everyMs,
  );
  return (
    <section class="card">
      <div class="head">
        <h2>What became of every record</h2>
        <Field label="Day, UTC" type="date" {...day} />
      </div>
      <Help page="src/insights/ledger/README.md" about="the ledger">
        Every accepted record is counted again where it ended up, so a lost one would be noticed.
      </Help>
      <Loaded from={books}>{(data) => <OfDay books={data} />}</Loaded>
    </section>
  );
}

function OfDay({ books }: { readonly books: Day }) {
  const counts = Object.entries(terms).map(
    ([term, words]) => [words, books[term as keyof typeof terms]] as const,
  );
  const rows = [['Accepted', books.acknowledged] as const, ...counts.filter(([, count]) => count > 0)];
  const wrong = books.minutes.filter(({ difference }) => difference !== 0);
  if (books.acknowledged === 0 && wrong.length === 0)
    return <p class="muted">No record was accepted on this day. The last minute is counted later.</p>;
  return (
    <>
      {wrong.length === 0 ? (
        <p>All records are accounted for.</p>
      ) : (
        <p role="alert" class="problem">
          {imbalanceOf(wrong.map(({ difference }) => difference))}, first at{' '}
          <Time at={wrong[0]?.minute ?? ''} />. Tell your operator.
        </p>
      )}
      <Table
        caption="Records of the day"
        rows={rows}
        keyOf={([what]) => what}
        empty=""
        columns={[
          { title: 'What became of them', text: ([what]) => what },
          { title: 'Records', text: ([, count]) => count, number: true },
        ]}
      />
      {books.not_balanced.map(({ from, to, reason }) => (
        <p key={from} class="hint">
          From {from} to {to} nothing can be compared: {reason}.
        </p>
      ))}
    </>
  );
}
