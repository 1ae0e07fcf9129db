// Events that have arrived, from the newest.

import type { ComponentChildren } from 'preact';
import type { Answer } from '../api.js';
import { Properties } from './parts.js';
import { Table } from './table.js';

export function Events(props: {
  readonly caption: string;
  readonly rows: Answer<'showLive'>['events'];
  readonly empty: ComponentChildren;
}) {
  return (
    <Table
      {...props}
      keyOf={({ event_id }) => event_id}
      columns={[
        { title: 'Accepted', time: (each) => each.received_at, to: 'second' },
        { title: 'Event', text: (each) => each.event },
        {
          title: 'User',
          text: (each) => (each.identity === '' ? (each.user_id ?? '') : each.identity),
        },
        {
          title: 'Properties',
          text: (each) => JSON.stringify(each.properties),
          cell: (each) => <Properties of={each.properties} />,
        },
      ]}
    />
  );
}
