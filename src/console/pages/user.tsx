// What one environment holds about a user: properties and events.

import { useState } from 'preact/hooks';
import { call } from '../api.js';
import { Loaded } from '../parts/parts.js';
import { useLoad } from '../parts/resource.js';
import { Table } from '../parts/table.js';
import { TimeLine } from './time-line.js';

export function UserDetails(props: {
  /** The environment's name. */
  readonly environment: string;
  /** The path of the environment's users. */
  readonly path: string;
  readonly asked: Readonly<Record<string, string>>;
}) {
  const { environment, path, asked } = props;
  const of = `${path} ${JSON.stringify(asked)}`;
  const user = useLoad(of, () => call<'lookUpUser'>('POST', path, { ...asked, events: false }));
  // The events are requested first: alongside all other queries, ClickHouse would take three times as long for them.
  const [hasShown, setHasShown] = useState(false);
  const counts = useLoad(hasShown ? `${of} counts` : undefined, () =>
    call<'countUserEvents'>('POST', `${path}/event-counts`, asked),
  );
  return (
    <>
      <section class="card" aria-label="In this environment">
        <h2>In {environment}</h2>
        <Loaded from={user}>
          {(found) => (
            <Table
              caption="Properties"
              rows={Object.entries(found.properties)}
              keyOf={([key]) => key}
              empty="No property of this user was sent, such as a name or a plan."
              columns={[
                { title: 'Property', text: ([key]) => key },
                { title: 'Value', text: ([, value]) => value },
              ]}
            />
          )}
        </Loaded>
      </section>
      <TimeLine
        path={path}
        asked={asked}
        events={counts.data?.events ?? []}
        onShown={() => setHasShown(true)}
      />
    </>
  );
}
