// The events of a user, the latest first, all or those of one name.

import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, call } from '../api.js';
import { Act, Choice, Problem, Properties, Table, Time } from '../parts/parts.js';

type Event = {
  readonly event_id: string;
  readonly event: string;
  readonly user_id: string | null;
  readonly identity: string;
  readonly session_id: string;
  readonly time: string;
  readonly properties: Readonly<Record<string, string>>;
};
type Page = { readonly events: readonly Event[]; readonly cursor?: string };

export function TimeLine(props: {
  readonly path: string;
  readonly asked: Readonly<Record<string, string>>;
  readonly events: readonly { readonly event: string; readonly count: number }[];
}) {
  const { path, asked, events } = props;
  const [wanted, setWanted] = useState('');
  const [pages, setPages] = useState<readonly Page[] | undefined>(undefined);
  const [fault, setFault] = useState('');
  const latest = useRef('');
  const load = (cursor?: string) =>
    call<Page>('POST', `${path}/events`, {
      ...asked,
      ...(wanted === '' ? {} : { event: wanted.slice(1) }),
      ...(cursor === undefined ? {} : { cursor }),
    });
  useEffect(() => {
    latest.current = wanted;
    setPages(undefined);
    load().then(
      (page) => latest.current === wanted && setPages([page]),
      (error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        setFault(error.message);
      },
    );
  }, [wanted]);
  const cursor = pages?.at(-1)?.cursor;
  return (
    <section class="card">
      <div class="head">
        <h2>Events</h2>
        {events.length > 1 && (
          <Choice
            label="Show"
            value={wanted}
            set={setWanted}
            options={[
              ['', 'all events'],
              // A mark before the name, since a name may be anything.
              ...events.map(
                ({ event, count }) => [`=${event}`, `${event} (${count.toLocaleString()})`] as const,
              ),
            ]}
          />
        )}
      </div>
      <Problem text={fault} />
      {pages === undefined && fault === '' && <p class="muted">Loading…</p>}
      {pages !== undefined && (
        <Table
          caption="Events of the user"
          rows={pages.flatMap((page) => page.events)}
          keyOf={({ event_id }) => event_id}
          empty="No event of this user is stored."
          columns={[
            { title: 'When', text: (each) => each.time, cell: (each) => <Time at={each.time} seconds /> },
            { title: 'Event', text: (each) => each.event },
            { title: 'By', text: (each) => each.user_id ?? each.identity },
            {
              title: 'Properties',
              text: (each) => JSON.stringify(each.properties),
              cell: (each) => <Properties of={each.properties} />,
            },
          ]}
        />
      )}
      {cursor !== undefined && (
        <Act
          button="Earlier events"
          work={async () => {
            const next = await load(cursor);
            setPages((known = []) => [...known, next]);
          }}
        />
      )}
    </section>
  );
}
