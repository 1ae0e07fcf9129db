// Which events an environment has sent recently, and what their properties look like.

import { useState } from 'preact/hooks';
import { type Answer, call, type EnvironmentOfList, part } from '../api.js';
import { Dialog } from '../parts/dialog.js';
import { Choice, Field, useField } from '../parts/fields.js';
import { Button } from '../parts/form.js';
import { Loaded } from '../parts/parts.js';
import { useLoad, useResource } from '../parts/resource.js';
import { Table } from '../parts/table.js';
import { onLink } from '../router.js';

type EventName = Answer<'listEventNames'>[number];

const noEvent = (
  <>
    No event was stored in this time.{' '}
    <a href="/api" onClick={onLink}>
      The page API has a command that sends one.
    </a>
  </>
);

/** How many names are shown at first; the search field finds the others. */
const listed = 20;

export function EventNames({ environment }: { readonly environment: EnvironmentOfList }) {
  const path = `/environments/${part(environment.app_id)}`;
  const days = useField<'1' | '7' | '30'>('7');
  const wanted = useField('');
  const [shown, setShown] = useState<string | undefined>(undefined);
  const names = useResource<'listEventNames'>(`${path}/event-names?days=${days.value}`);
  return (
    <section class="card">
      <div class="head">
        <h2>Events</h2>
        <Choice
          label="Accepted in"
          {...days}
          options={[
            ['1', 'the last day'],
            ['7', 'the last 7 days'],
            ['30', 'the last 30 days'],
          ]}
        />
      </div>
      <Loaded from={names}>
        {(data) => (
          <>
            {(data.length > listed || wanted.value !== '') && <Field label="Find an event" {...wanted} />}
            <Table
              caption="Event names"
              copies
              rows={data.filter(({ event }) => event.toLowerCase().includes(wanted.value.toLowerCase()))}
              first={listed}
              keyOf={({ event }) => event}
              empty={data.length === 0 ? noEvent : 'No event has this name.'}
              columns={[
                { title: 'Event', text: (each) => each.event, isLong: true, sorts: true },
                {
                  title: 'Count',
                  text: (each) => each.count,
                  number: true,
                  sorts: true,
                },
                {
                  title: 'Share (%)',
                  text: (each) => percentOf(each, data),
                  cell: (each) => shareText(percentOf(each, data)),
                  number: true,
                },
                { title: 'First in this period', time: (each) => each.first_seen, sorts: true },
                { title: 'Last', time: (each) => each.last_seen, sorts: true },
              ]}
              actions={(each) => (
                <Button
                  kind="small"
                  text="Properties"
                  label={`Properties of ${each.event}`}
                  act={() => setShown(each.event)}
                />
              )}
            />
          </>
        )}
      </Loaded>
      {shown !== undefined && (
        <Dialog title={`Properties of ${shown}`} close={() => setShown(undefined)}>
          <Properties path={`${path}/event-properties`} event={shown} days={days.value} />
          <Button text="Close" act={() => setShown(undefined)} />
        </Dialog>
      )}
    </section>
  );
}

/** A name's share of all events in the list, to a tenth of a percent. */
function percentOf({ count }: EventName, all: readonly EventName[]): number {
  return Math.round((1000 * count) / all.reduce((sum, each) => sum + each.count, 0)) / 10;
}

/** A share in words. Never 0 %, since every name in the list has events. */
function shareText(percent: number): string {
  return percent === 0 ? '< 0.1 %' : `${percent.toLocaleString()} %`;
}

const types = ['number', 'boolean', 'time', 'text'] as const;

type PropertiesOf = { readonly path: string; readonly event: string; readonly days: string };

/** Requested by POST, since the name may be too long for a URL. */
function Properties({ path, ...of }: PropertiesOf) {
  const load = () => call<'listEventProperties'>('POST', path, of);
  const properties = useLoad(`${path} ${of.days} ${of.event}`, load);
  return (
    <Loaded from={properties}>
      {(data) => (
        <>
          <Table
            caption="Properties of the event"
            rows={data}
            keyOf={({ property }) => property}
            empty="These events have no properties. A sender adds them in the field properties of an event."
            columns={[
              { title: 'Property', text: (each) => each.property },
              { title: 'Events', text: (each) => each.count, number: true },
              { title: 'Values look like', text: typesOf },
            ]}
          />
          <p class="muted">
            Judged by at most 10,000 events. More than one type is often a sender’s mistake.
          </p>
        </>
      )}
    </Loaded>
  );
}

/** `number`, or `number 98 %, text 2 %`. */
function typesOf(property: Answer<'listEventProperties'>[number]): string {
  const seen = types.filter((type) => property[type] > 0);
  if (seen.length === 1) return seen[0] ?? '';
  return seen
    .map((type) => `${type} ${Math.max(1, Math.round((100 * property[type]) / property.count))} %`)
    .join(', ');
}
