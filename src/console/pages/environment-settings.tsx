// The settings of an environment: how records are checked, how many are accepted, and how long they are kept. Only changed settings are
// sent, so that two people who change different settings at once do not undo each other's changes.

import { useState } from 'preact/hooks';
import { type LimitName, rateLimits } from '../../contract/limits.js';
import { type Answer, call, type EnvironmentOfList, part, reloadAccounts } from '../api.js';
import { Dialog } from '../parts/dialog.js';
import { Check, Choice, Field, useField } from '../parts/fields.js';
import { Button, Form } from '../parts/form.js';
import { Help, Loaded } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { may } from '../session.js';
import { countedByLimit } from '../words.js';

type SettingsOf = Answer<'showEnvironment'>;

const limits = Object.entries(countedByLimit) as readonly (readonly [LimitName, string])[];

function defaultText(name: LimitName): string {
  return rateLimits[name].max.toLocaleString();
}

export function EnvironmentSettings(props: {
  readonly environment: EnvironmentOfList;
  readonly close: () => void;
}) {
  const { environment, close } = props;
  const settings = useResource<'showEnvironment'>(`/environments/${part(environment.app_id)}`);
  return (
    <Dialog title={`Settings of ${environment.name}`} close={close}>
      <Loaded from={settings}>
        {(data) =>
          may('setEnvironment') ? (
            <EnvironmentForm environment={environment} settings={data} close={close} />
          ) : (
            <Shown settings={data} close={close} />
          )
        }
      </Loaded>
    </Dialog>
  );
}

function Shown({ settings, close }: { readonly settings: SettingsOf; readonly close: () => void }) {
  const { validation, limits: set, retain_days: days, allowed_identities: allowed = [] } = settings;
  return (
    <>
      <p>
        Records that are not as they should be are{' '}
        {validation === 'strict' ? 'refused' : 'corrected where possible'}. Events are kept{' '}
        {days === undefined ? 'for ever' : `for ${days.toLocaleString()} days`}.
        {allowed.length > 0 && ` These words may be identities: ${allowed.join(', ')}.`}
      </p>
      <h3>Limits</h3>
      <ul>
        {limits.map(([name, what]) => (
          <li key={name}>
            {what}: {set[name]?.toLocaleString() ?? `${defaultText(name)}, the default`}
          </li>
        ))}
      </ul>
      <Button text="Close" act={close} />
    </>
  );
}

function EnvironmentForm(props: {
  readonly environment: EnvironmentOfList;
  readonly settings: SettingsOf;
  readonly close: () => void;
}) {
  const { environment, settings, close } = props;
  const limitsBefore = Object.fromEntries(
    limits.map(([name]) => [name, String(settings.limits[name] ?? '')]),
  );
  const daysBefore = String(settings.retain_days ?? '');
  const allowed = settings.allowed_identities ?? [];
  const validation = useField(settings.validation);
  const [values, setValues] = useState<Readonly<Record<string, string>>>(limitsBefore);
  const main = useField<'as' | 'main'>('as');
  const days = useField(daysBefore);
  const wantedDays = days.value.trim();
  const allow = useField('');
  const [removed, setRemoved] = useState<readonly string[]>([]);
  const save = async () => {
    const changedLimits = limits
      .map(([name]) => [name, (values[name] ?? '').trim()] as const)
      .filter(([name, value]) => value !== limitsBefore[name])
      .map(([name, value]) => [name, value || 'default'] as const);
    const words = allow.value.split('\n').filter((line) => line.trim() !== '');
    await call('PATCH', `/environments/${part(environment.app_id)}`, {
      ...(validation.value === settings.validation ? {} : { validation: validation.value }),
      ...(wantedDays === daysBefore ? {} : { retain_days: wantedDays || 'none' }),
      ...(words.length === 0 ? {} : { allow_identities: words }),
      ...(removed.length === 0 ? {} : { disallow_identities: removed }),
      ...(main.value === 'main' ? { main: true } : {}),
      limits: Object.fromEntries(changedLimits),
    });
    await reloadAccounts();
    close();
  };
  return (
    <Form label={`Settings of ${environment.name}`} submit="Save" work={save} cancel={close}>
      <Choice
        label="Records that are not as they should be"
        {...validation}
        options={[
          ['strict', 'are refused'],
          ['lenient', 'are corrected where possible'],
        ]}
      />
      {!environment.main && (
        <Choice
          label="Main Production"
          {...main}
          options={[
            ['as', 'stays as it is'],
            ['main', 'becomes this environment'],
          ]}
          hint="Only API keys of the main environment give tokens that delete users."
        />
      )}
      {main.value === 'main' && (
        <p class="problem">
          Tokens and API keys of the present main environment delete nobody any more, at once. Programs need a
          key of {environment.name}.
        </p>
      )}
      <Field
        label="Days that events are kept"
        {...days}
        mode="numeric"
        hint="Empty: for ever. Users who send no event for so long are deleted, too."
      />
      {wantedDays !== '' && wantedDays !== daysBefore && (
        <p class="problem">
          Events of {environment.name} that were accepted more than {wantedDays} days ago are deleted within a
          day. This cannot be undone.
        </p>
      )}
      <Field
        label="Words to allow as identities, one per line"
        {...allow}
        lines={2}
        hint={`Identify refuses words such as null or user, since they would merge strangers for ever. ${
          allowed.length === 0 ? 'None is allowed now.' : `Allowed now: ${allowed.join(', ')}.`
        }`}
      />
      {allowed.map((word) => (
        <Check
          key={word}
          label={`Allow ${word}`}
          value={!removed.includes(word)}
          set={(isAllowed) =>
            setRemoved(isAllowed ? removed.filter((other) => other !== word) : [...removed, word])
          }
          hint="Uncheck it to have the word refused again. Users who were merged by it stay merged."
        />
      ))}
      <fieldset>
        <legend>Limits: a number, none, or empty for the default</legend>
        <Help page="src/http/README.md#limits" about="limits">
          Records above a limit are refused, and their senders try again later.
        </Help>
        {limits.map(([name, what]) => (
          <Field
            key={name}
            label={`${what} (default ${defaultText(name)})`}
            value={values[name] ?? ''}
            set={(value) => setValues({ ...values, [name]: value })}
          />
        ))}
      </fieldset>
    </Form>
  );
}
