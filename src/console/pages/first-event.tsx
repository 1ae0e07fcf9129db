// The first event of an environment: shows programs that send one, until it has arrived.

import { useEffect, useState } from 'preact/hooks';
import { type Answer, type EnvironmentOfList, part } from '../api.js';
import { Choice, useField } from '../parts/fields.js';
import { Copy } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { onLink } from '../router.js';
import { may } from '../session.js';

type First = Answer<'showFirstEvent'>;

const everyMs = 1_000;

/** Shows nothing if the environment already had events. */
export function FirstEvent({ environment }: { readonly environment: EnvironmentOfList }) {
  const [wasEmpty, setWasEmpty] = useState(false);
  const [first, setFirst] = useState<First | undefined>(undefined);
  const chosen = useField('0');
  const path = `/environments/${part(environment.app_id)}/first-event`;
  const { data } = useResource<'showFirstEvent'>(first?.event ? undefined : path, everyMs);
  useEffect(() => {
    if (data === undefined) return;
    setFirst(data);
    if (data.event === null) setWasEmpty(true);
  }, [data]);
  if (first === undefined || !wasEmpty) return null;
  if (first.event !== null) {
    return (
      <section class="card wellness good">
        <p class="sentence" role="status">
          The first event of {environment.name} has arrived: {first.event.event}.
        </p>
        {may('watchLive') && (
          <p>
            <a href="/live" onClick={onLink}>
              Watch what arrives
            </a>
          </p>
        )}
      </section>
    );
  }
  const program = first.examples[Number(chosen.value)]?.program ?? '';
  return (
    <section class="card">
      <div class="head">
        <h2>Send the first event of {environment.name}</h2>
        <Choice
          label="With"
          {...chosen}
          options={first.examples.map(({ name }, index) => [String(index), name] as const)}
        />
      </div>
      {program.includes('WRITE_KEY') && <p>Put a write key of this environment in place of WRITE_KEY.</p>}
      <pre class="program" translate={false}>
        <code>{program}</code>
      </pre>
      <Copy text={program} what="the program" />
      <p role="status" class="muted">
        Waiting for the first event: it is shown here as soon as it is stored.
      </p>
    </section>
  );
}
