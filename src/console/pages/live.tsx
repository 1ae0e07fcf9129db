// Live: some of the events that arrive in an environment now, the way to the Event Visualizer for one device, and the demo.

import { useRef, useState } from 'preact/hooks';
import { type Account, type Answer, ApiError, call, type EnvironmentOfList, part } from '../api.js';
import { useEnvironment } from '../parts/environment.js';
import { Events } from '../parts/events.js';
import { ActionButton, Button } from '../parts/form.js';
import { Help, Problem } from '../parts/parts.js';
import { useLoad } from '../parts/resource.js';

type Page = Answer<'showLive'>;

const everyMs = 2_000;
const keptMax = 200;

export function Live({ account }: { readonly account: Account }) {
  const { environment, field } = useEnvironment(account);
  return (
    <>
      <div class="head">
        <h1>Live</h1>
        {field}
      </div>
      {environment !== undefined && <Stream key={environment.app_id} environment={environment} />}
      <section class="card">
        <h2>One device</h2>
        <Help page="src/insights/visualizer/README.md" about="the Event Visualizer">
          The Event Visualizer shows everything that one paired device sends, and the answers to it, before it
          is stored. Shake the device, and enter in the Event Visualizer the code that the device shows.
        </Help>
        <a class="button" href="/visualizer">
          Open the Event Visualizer
        </a>
      </section>
      {account.demo === true && (
        <section class="card">
          <h2>Demo</h2>
          <p>
            Buttons for what the client library can do, in a browser and on a phone. Beside them: what
            arrived, and how long it took.
          </p>
          <a class="button" href="/demo">
            Open the demo
          </a>
        </section>
      )}
    </>
  );
}

function Stream({ environment }: { readonly environment: EnvironmentOfList }) {
  const path = `/environments/${part(environment.app_id)}/live`;
  const place = useRef('');
  const [isWatching, setWatching] = useState(false);
  const [events, setEvents] = useState<Page['events']>([]);
  const [arrived, setArrived] = useState(0);
  const [ended, setEnded] = useState('');
  const look = async () => {
    const from = place.current;
    const page = await call<'showLive'>('GET', `${path}?place=${part(from)}`).catch((error: unknown) => {
      // The service stops answering after a while; the reader then has to start again.
      if (error instanceof ApiError && !error.isTemporary) {
        place.current = '';
        setEnded(error.message);
        setWatching(false);
      }
      throw error;
    });
    // If the place has changed, the reader has started again in the meantime.
    if (place.current === from) {
      place.current = page.place;
      setEvents((known) => [...page.events, ...known].slice(0, keptMax));
      setArrived((count) => count + page.arrived);
    }
    return page;
  };
  const stream = useLoad(isWatching ? path : undefined, look, everyMs);
  // After a pause, the list continues where it was. A new place reaches back some seconds, so the list then starts again.
  const begin = async () => {
    if (place.current === '') {
      const begun = await call<'watchLive'>('POST', path);
      place.current = begun.place;
      setEvents([]);
      setArrived(0);
    }
    setEnded('');
    setWatching(true);
  };
  return (
    <section class="card">
      <div class="head">
        <h2>What arrives in {environment.name}</h2>
        {isWatching ? (
          <Button text="Pause" act={() => setWatching(false)} />
        ) : (
          <ActionButton button={events.length === 0 ? 'Watch' : 'Go on'} work={begin} />
        )}
      </div>
      <Problem text={stream.fault || ended} />
      {!isWatching && events.length === 0 ? (
        <p class="empty">
          Events as they are stored, at most ten a second. The audit log notes that you watched; nothing else
          is stored.
        </p>
      ) : (
        <>
          <p role="status" class="muted">
            {arrived.toLocaleString()} arrived, {events.length.toLocaleString()} shown.
          </p>
          <Events caption="Events that arrived" rows={events} empty="Waiting for events." />
        </>
      )}
    </section>
  );
}
