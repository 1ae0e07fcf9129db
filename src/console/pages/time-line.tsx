// The events of a user, from the latest: all of them, or those with one name.

import { useEffect } from 'preact/hooks';
import { call } from '../api.js';
import { Choice, useField } from '../parts/fields.js';
import { Pages, usePages } from '../parts/paged.js';
import { Properties } from '../parts/parts.js';
import { Table } from '../parts/table.js';

export function TimeLine(props: {
  readonly path: string;
  readonly asked: Readonly<Record<string, string>>;
  readonly events: readonly { readonly event: string; readonly count: number }[];
  /** Called when the first events are shown, or the reason why they cannot be shown. */
  readonly onShown: () => void;
}) {
  const { path, asked, events, onShown } = props;
  const wanted = useField('');
  const load = (cursor?: string) =>
    call<'readUserEvents'>('POST', `${path}/events`, {
      ...asked,
      ...(wanted.value === '' ? {} : { event: wanted.value.slice(1) }),
      ...(cursor === undefined ? {} : { cursor }),
    });
  const list = usePages(`${path} ${JSON.stringify(asked)} ${wanted.value}`, load, ({ cursor }) => cursor);
  const isShown = list.pages.data !== undefined || list.pages.fault !== '';
  useEffect(() => {
    if (isShown) onShown();
  }, [isShown]);
  return (
    <section class="card">
      <div class="head">
        <h2>Events</h2>
        {events.length > 1 && (
          <Choice
            label="Show"
            {...wanted}
            options={[
              ['', 'all events'],
              // The `=` distinguishes a name from the empty value, which stands for all events.
              ...events.map(
                ({ event, count }) => [`=${event}`, `${event} (${count.toLocaleString()})`] as const,
              ),
            ]}
          />
        )}
      </div>
      <Pages from={list} button="Earlier events">
        {(pages) => (
          <Table
            caption="Events of the user"
            copies
            rows={pages.flatMap((page) => page.events)}
            keyOf={({ event_id }) => event_id}
            empty="No event of this user is stored."
            columns={[
              { title: 'When', time: (each) => each.time, to: 'second' },
              { title: 'Event', text: (each) => each.event },
              { title: 'Sent as', text: (each) => each.user_id ?? each.identity },
              {
                title: 'Properties',
                text: (each) => JSON.stringify(each.properties),
                cell: (each) => <Properties of={each.properties} />,
              },
            ]}
          />
        )}
      </Pages>
    </section>
  );
}
