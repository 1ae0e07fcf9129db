// The demo: buttons for what the client library can do, and the events that have arrived. It is a document of its own, so that the library
// does not record the console.

import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError } from '../api.js';
import { Events } from '../parts/events.js';
import { Facts, Problem, Properties } from '../parts/parts.js';
import { useLoad } from '../parts/resource.js';
import { Table } from '../parts/table.js';
import { keepTexts } from '../parts/translated.js';
import { type Arrived, calls, identities, isWaiting, rememberUser, settleCalls, userIds } from './calls.js';
import { Card } from './card.js';
import { Operations, sluice } from './operations.js';
import { Phone, phone, startPhone } from './phone.js';

const root = document.getElementById('demo') as HTMLElement;
const { appId = '', baseUrl = '' } = root.dataset;

const everyMs = 1_000;
const everyMsWhileWaiting = 200;
/** The request line and the headers together have to fit into 4 KiB. */
const queryCharsMax = 3_000;

async function load(): Promise<Arrived> {
  for (const each of [sluice, phone]) rememberUser(each);
  if (userIds.length === 0) return { events: [], users: [] };
  const query = new URLSearchParams({ app_id: appId });
  for (const id of userIds) query.append('user_id', id);
  for (const identity of identities) {
    query.append('identity', identity);
    // If the names are long, those of earlier users are left out.
    if (String(query).length > queryCharsMax) break;
  }
  const reply = await fetch(`/demo/arrived?${query}`).catch(() => {
    const why = 'The service does not answer: is it running?';
    throw new ApiError(0, `${why} What you do meanwhile is kept, and sent when it is back.`);
  });
  const answer = await reply.json().catch(() => ({}));
  if (!reply.ok)
    throw new ApiError(reply.status, answer.err?.message ?? `The service answered ${reply.status}.`);
  settleCalls(answer);
  return answer;
}

function Calls({ made }: { readonly made: typeof calls.value }) {
  return (
    <Card title="What you called" note="and when it could be queried">
      <ol class="calls" aria-live="polite">
        {made.map(({ key, code, tone, words, messages }) => (
          <li key={key}>
            <code>{code}</code> <span class={`chip ${tone}`}>{words}</span>
            {messages.map((line) => (
              <p key={line} class="message">
                {line}
              </p>
            ))}
          </li>
        ))}
      </ol>
      {made.length === 0 && <p class="muted">Press a button.</p>}
    </Card>
  );
}

/** Shown if an ad blocker keeps the script away. */
function Blocked() {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 3_000);
    return () => clearTimeout(timer);
  }, []);
  const words =
    'The script /sdk.js has not loaded: is something blocking it? The calls wait in the page until it is there.';
  return <Problem text={isLate && sluice.userId === undefined ? words : ''} />;
}

function Demo() {
  const { data, fault } = useLoad('arrived', load, isWaiting.value ? everyMsWhileWaiting : everyMs);
  return (
    <>
      <header class="bar">
        <h1>
          Sluice demo <span class="of">· environment {appId}</span>
        </h1>
        <nav>
          <a href="/visualizer">Event Visualizer</a> <a href="/live">Console</a>
        </nav>
      </header>
      <main>
        <Blocked />
        <Problem text={fault} />
        <div class="columns">
          <div>
            <Card title="This browser's user">
              <Facts
                of={[
                  ['userId', <code key="userId">{sluice.userId ?? 'none'}</code>],
                  ['identity', <code key="identity">{sluice.identity || 'none: anonymous'}</code>],
                ]}
              />
            </Card>
            <Operations />
          </div>
          <div>
            <Phone />
            <Calls made={calls.value} />
            <Card
              title="Events in ClickHouse"
              class="fresh"
              note={fault === '' ? 'the latest, refreshed each second' : 'not refreshed now'}
            >
              <Events caption="Events that arrived" rows={eventsOf(data)} empty="Nothing yet." />
            </Card>
            <Card title="The user" note={viewUsers}>
              <Table
                caption="Users"
                rows={data?.users ?? []}
                keyOf={({ identity, user_ids }) => `${identity} ${user_ids}`}
                empty="No users yet."
                columns={[
                  { title: 'Identity', text: ({ identity }) => identity || 'anonymous' },
                  { title: 'User ids', text: ({ user_ids }) => user_ids.join(', ') },
                  {
                    title: 'Properties',
                    text: ({ properties }) => JSON.stringify(properties),
                    cell: ({ properties }) => <Properties of={properties} />,
                  },
                ]}
              />
            </Card>
          </div>
        </div>
      </main>
    </>
  );
}

const viewUsers = (
  <>
    view <code>users</code>
  </>
);

/** ClickHouse's times are in UTC. */
function eventsOf(data: Arrived | undefined): Arrived['events'] {
  return (data?.events ?? []).map((event) => ({
    ...event,
    received_at: `${event.received_at.replace(' ', 'T')}Z`,
  }));
}

keepTexts(root);
startPhone(appId, baseUrl);
render(<Demo />, root);
