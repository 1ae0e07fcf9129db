// Keys and access of an account: its app_ids, its API keys, and who may write to its environments.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { type Account, type Answer, call, type EnvironmentOfList, part } from '../api.js';
import { Confirm, Dialog } from '../parts/dialog.js';
import { useEnvironment } from '../parts/environment.js';
import { Choice, Field, useField } from '../parts/fields.js';
import { Button, Form } from '../parts/form.js';
import { Copy, Help, Loaded, Secret } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { LoadedTable, Table } from '../parts/table.js';
import { may } from '../session.js';
import { Callback } from './callback.js';

type ApiKey = Answer<'listKeys'>[number];

type WriteKey = Answer<'listWriteKeys'>[number];

export function Security({ account }: { readonly account: Account }) {
  const main = account.environments.find((each) => each.main);
  const { environment, field } = useEnvironment(account);
  return (
    <>
      <h1>Keys and access</h1>
      <p class="muted above">
        The privacy and security settings of your account: which programs may write, and which may delete.
      </p>
      <section class="card">
        <h2>Environments</h2>
        <p class="muted">Every record that is sent names the app ID. It is not a secret.</p>
        <Table
          caption="App IDs"
          rows={account.environments}
          keyOf={({ app_id }) => app_id}
          empty="There is no environment yet. An administrator adds one in Settings."
          columns={[
            {
              title: 'Environment',
              text: ({ name }) => name,
              cell: (each) => (
                <>
                  {each.name} {each.main && <span class="chip accent">main</span>}
                </>
              ),
            },
            {
              title: 'App ID',
              text: ({ app_id }) => app_id,
              cell: ({ app_id }) => <code class="value">{app_id}</code>,
            },
          ]}
          actions={({ app_id, name }) => <Copy text={app_id} what={`app ID of ${name}`} />}
        />
      </section>
      {main !== undefined && <ApiKeys key={main.app_id} environment={main} />}
      <Callback account={account} />
      {environment !== undefined && (
        <Writing key={environment.app_id} environment={environment} choice={field} />
      )}
    </>
  );
}

function nameOf({ name }: { readonly name: string }): string {
  return name === '' ? 'without a name' : name;
}

function ApiKeys({ environment }: { readonly environment: EnvironmentOfList }) {
  const { app_id } = environment;
  const path = `/environments/${part(app_id)}`;
  const keys = useResource<'listKeys'>(`${path}/keys`);
  const name = useField('');
  const [secret, setSecret] = useState('');
  const [rotating, setRotating] = useState<ApiKey | undefined>(undefined);
  const create = async () => {
    const taken = new Set(keys.data?.map((key) => key.name));
    const { api_key } = await call<'createKey'>('POST', `${path}/key`, {
      name: name.value.trim() || unusedName(taken),
    });
    setSecret(api_key);
    name.set('');
    keys.reload();
  };
  return (
    <section class="card">
      <h2>API keys</h2>
      <Help page="src/privacy/deletion/README.md#walk-through" about="the deletion API">
        With an API key and the app ID of {environment.name}, your programs delete users and ask how far
        deletions are.
      </Help>
      {secret !== '' && <Secret text={secret} what="API key" />}
      <LoadedTable
        from={keys}
        caption="API keys"
        copies
        keyOf={({ id }) => id}
        empty={
          may('createKey')
            ? 'There is no API key yet. Create one below.'
            : 'There is no API key yet. An administrator can create one.'
        }
        columns={[
          {
            title: 'Name',
            text: nameOf,
            cell: (key) => <span class={key.name === '' ? 'muted' : ''}>{nameOf(key)}</span>,
          },
          { title: 'Created', time: (key) => key.created_at },
          { title: 'Last used', time: (key) => key.last_used_at, none: 'never' },
          { title: 'Ends', time: (key) => key.expires_at, none: 'never' },
        ]}
        actions={
          may('rotateKey') &&
          ((key) => (
            <>
              {key.expires_at === null && (
                <Button
                  kind="small"
                  text="Rotate"
                  label={`Rotate API key ${nameOf(key)}`}
                  act={() => setRotating(key)}
                />
              )}
              <Confirm
                button="Revoke"
                of={`API key ${nameOf(key)}`}
                title="Revoke this API key?"
                says={
                  <p>
                    The key <strong>{nameOf(key)}</strong> and all tokens made with it end at once. Programs
                    that use it can delete nobody any more.
                  </p>
                }
                confirm="Revoke key"
                work={() => call('DELETE', `${path}/keys/${part(key.id)}`).then(keys.reload)}
              />
            </>
          ))
        }
      />
      {/* Only once the list is loaded, which says what names are taken. */}
      {may('createKey') && keys.data !== undefined && (
        <Form label="New API key" submit="Create API key" inline work={create}>
          <Field label="Name of the new key" {...name} hint="For example, the program that will use it." />
        </Form>
      )}
      {rotating !== undefined && (
        <Rotate
          path={path}
          apiKey={rotating}
          close={() => setRotating(undefined)}
          done={(created) => {
            setSecret(created);
            setRotating(undefined);
            keys.reload();
          }}
        />
      )}
    </section>
  );
}

function unusedName(taken: ReadonlySet<string>): string {
  let number = taken.size + 1;
  while (taken.has(`Key ${number}`)) number += 1;
  return `Key ${number}`;
}

function Rotate(props: {
  readonly path: string;
  readonly apiKey: ApiKey;
  readonly close: () => void;
  readonly done: (created: string) => void;
}) {
  const overlap = useField('24h');
  return (
    <Dialog title={`Rotate API key ${nameOf(props.apiKey)}`} close={props.close}>
      <p>A new key takes the place of this one. It is shown once.</p>
      <Form
        label="Rotate API key"
        submit="Rotate key"
        cancel={props.close}
        work={async () => {
          const { api_key } = await call<'rotateKey'>('PUT', `${props.path}/key`, {
            name: props.apiKey.name,
            ...(overlap.value === '' ? {} : { overlap: overlap.value }),
          });
          props.done(api_key);
        }}
      >
        <Choice
          label="The old key ends"
          {...overlap}
          options={[
            ['', 'at once'],
            ['1h', 'in an hour'],
            ['24h', 'in a day'],
            ['7d', 'in a week'],
          ]}
          hint="Until then both keys work, so that programs can switch."
        />
      </Form>
    </Dialog>
  );
}

/** Who may write to an environment: its write keys, and the origins of its pages. */
function Writing(props: { readonly environment: EnvironmentOfList; readonly choice: ComponentChildren }) {
  const { app_id, name } = props.environment;
  const path = `/environments/${part(app_id)}`;
  const settings = useResource<'showEnvironment'>(path);
  const keys = useResource<'listWriteKeys'>(`${path}/write-keys`);
  const newName = useField('');
  const [secret, setSecret] = useState('');
  const change = (body: object) => call('PATCH', path, body).then(settings.reload);
  return (
    <section class="card">
      <h2>Who may write to {name}</h2>
      {props.choice}
      <Loaded from={settings}>
        {(data) => (
          <>
            <Help page="src/http/README.md#write-keys" about={`who may write to ${name}`}>
              {data.write_key === 'required'
                ? 'Servers need a write key. '
                : 'Every server that knows the app ID can write. '}
              {data.origins === undefined
                ? 'Pages of any site can write.'
                : data.origins.length === 0
                  ? 'No page can write.'
                  : `Pages of ${data.origins.join(', ')} can write.`}
            </Help>
            {may('setEnvironment') && (
              <details>
                <summary>Change who may write to {name}</summary>
                <RequireKeys
                  name={name}
                  isRequired={data.write_key === 'required'}
                  keys={keys.data}
                  change={change}
                />
                <Origins key={data.origins?.join()} name={name} origins={data.origins} change={change} />
              </details>
            )}
          </>
        )}
      </Loaded>
      {secret !== '' && <Secret text={secret} what="write key" />}
      <LoadedTable
        from={keys}
        caption={`Write keys of ${name}`}
        keyOf={({ id }) => id}
        empty="There is no write key. One is needed only where write keys are required."
        columns={[
          { title: 'Write key', text: nameOf },
          { title: 'Created', time: (key) => key.created_at },
        ]}
        actions={
          may('revokeWriteKey') &&
          ((key) => (
            <Confirm
              button="Revoke"
              of={`write key ${nameOf(key)}`}
              title="Revoke this write key?"
              says={
                keys.data?.length === 1 && settings.data?.write_key === 'required' ? (
                  <p>
                    This is the last write key of {name}, which requires one. Within a second{' '}
                    <strong>all servers are refused</strong> (401), until there is another key or none is
                    required.
                  </p>
                ) : (
                  <p>
                    Within a second, producers with the key {nameOf(key)} are refused where a key is required.
                  </p>
                )
              }
              confirm="Revoke key"
              work={() => call('DELETE', `${path}/write-keys/${part(key.id)}`).then(keys.reload)}
            />
          ))
        }
      />
      {may('createWriteKey') && (
        <Form
          label={`New write key of ${name}`}
          submit="Create write key"
          inline
          work={async () => {
            const created = await call<'createWriteKey'>('POST', `${path}/write-keys`, {
              name: newName.value.trim(),
            });
            setSecret(created.write_key);
            newName.set('');
            keys.reload();
          }}
        >
          <Field label={`Name of the new write key of ${name}`} {...newName} />
        </Form>
      )}
    </section>
  );
}

/** Turns the requirement of write keys on or off, after the reader has confirmed what that does to producers. */
function RequireKeys(props: {
  readonly name: string;
  readonly isRequired: boolean;
  readonly keys: readonly WriteKey[] | undefined;
  readonly change: (body: object) => Promise<void>;
}) {
  const { name, isRequired, keys = [], change } = props;
  if (isRequired)
    return (
      <Confirm
        button="No longer require write keys"
        title={`Take records of ${name} without a write key?`}
        says={
          <p>
            Within a second every server that knows the app ID of {name} can write to it, with a key or
            without.
          </p>
        }
        confirm="Take records without a key"
        work={() => change({ write_key: 'optional' })}
      />
    );
  if (keys.length === 0)
    return (
      <p class="muted">
        To require write keys, create one below first and put it into your servers: without one all of them
        would be refused.
      </p>
    );
  return (
    <Confirm
      button="Require write keys"
      title={`Require write keys for ${name}?`}
      says={
        <>
          <p>
            Within a second, servers that send to {name} without one of its write keys{' '}
            <strong>are refused</strong> (401), and what they send is not stored. Pages and phones go on.
          </p>
          <p>Its keys: {keys.map(nameOf).join(', ')}. Put one into every server first.</p>
        </>
      }
      confirm="Refuse servers without a key"
      work={() => change({ write_key: 'required' })}
    />
  );
}

function Origins(props: {
  readonly name: string;
  readonly origins: readonly string[] | undefined;
  readonly change: (body: object) => Promise<void>;
}) {
  const text = useField(props.origins?.join('\n') ?? '');
  const any = useField<'any' | 'listed'>(props.origins === undefined ? 'any' : 'listed');
  return (
    <Form
      label={`Origins of ${props.name}`}
      submit="Save origins"
      work={() => {
        const listed = text.value.split(/\s+/).filter((origin) => origin !== '');
        return props.change({
          origins: any.value === 'any' ? 'any' : listed.length === 0 ? ['none'] : listed,
        });
      }}
    >
      <Choice
        label={`Pages that may write to ${props.name}`}
        {...any}
        options={[
          ['any', 'of any site'],
          ['listed', 'of these origins only'],
        ]}
      />
      {any.value === 'listed' && (
        <Field
          label={`Origins of ${props.name}`}
          {...text}
          lines={3}
          hint="One per line, such as https://shop.example. Empty: no page."
        />
      )}
      {any.value === 'listed' && text.value.trim() !== props.origins?.join('\n') && (
        <p class="problem">
          {text.value.trim() === '' ? 'The messages of all pages' : 'Messages of pages of other origins'} are
          refused within a second.
        </p>
      )}
    </Form>
  );
}
