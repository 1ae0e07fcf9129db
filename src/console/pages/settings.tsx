// Settings: the own access, environments, people, accounts, and the audit log. Each person sees what they may do.

import { useState } from 'preact/hooks';
import type { LimitName } from '../../contract/limits.js';
import { type Role, roles } from '../../contract/roles.js';
import { type Account, call, type EnvironmentOfList, type Person, part } from '../api.js';
import { Choice, Confirm, Copy, Dialog, Field, Form, Loaded, Table, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { accounts, may, person } from '../session.js';

export function Settings({ account }: { readonly account: Account | undefined }) {
  return (
    <>
      <h1>Settings</h1>
      {account !== undefined && <Environments account={account} />}
      {account !== undefined && may('listPeople') && <People account={account} />}
      {may('createAccount') && <Accounts />}
      <OwnAccess />
      {may('listAudit') && <AuditLog account={account} />}
    </>
  );
}

async function reloadAccounts(): Promise<void> {
  accounts.value = await call<Account[]>('GET', '/accounts');
}

function Environments({ account }: { readonly account: Account }) {
  const [name, setName] = useState('');
  const [changing, setChanging] = useState<EnvironmentOfList | undefined>(undefined);
  return (
    <section class="card">
      <h2>Environments</h2>
      <Table
        caption="Environments"
        rows={account.environments}
        keyOf={({ app_id }) => app_id}
        empty="There is no environment."
        columns={[
          {
            title: 'Name',
            text: (each) => each.name,
            cell: (each) => (
              <>
                {each.name} {each.main && <span class="chip accent">main</span>}
              </>
            ),
          },
          { title: 'App ID', text: (each) => each.app_id, cell: (each) => <code>{each.app_id}</code> },
        ]}
        actions={(each) => (
          <button
            type="button"
            class="small"
            aria-label={`Settings of ${each.name}`}
            onClick={() => setChanging(each)}
          >
            Settings
          </button>
        )}
      />
      {may('addEnvironment') && (
        <Form
          label="New environment"
          submit="Add environment"
          inline
          work={async () => {
            await call('POST', `/accounts/${part(account.account_id)}/environments`, { name: name.trim() });
            setName('');
            await reloadAccounts();
          }}
        >
          <Field label="Name of the new environment" value={name} set={setName} required />
        </Form>
      )}
      {changing !== undefined && (
        <EnvironmentSettings environment={changing} close={() => setChanging(undefined)} />
      )}
    </section>
  );
}

type SettingsOf = {
  readonly validation: 'strict' | 'lenient';
  readonly limits: Readonly<Record<string, number | 'none'>>;
  readonly allowed_identities?: readonly string[];
};

/** The limits, and what each counts. */
const countedByLimit: Readonly<Record<LimitName, string>> = {
  track: 'Events of one identity, in 30 s',
  user_properties: 'Properties of one identity, in 30 s',
  bulk_identity: 'Records of one identity in bulk requests, in 60 s',
  bulk_app: 'Records in bulk requests, in 60 s',
  collect_user: 'Messages of one user of the client library, in 60 s',
  collect_app: 'Messages of the client library, in 60 s',
};
const limits = Object.entries(countedByLimit);

function EnvironmentSettings(props: { readonly environment: EnvironmentOfList; readonly close: () => void }) {
  const { environment, close } = props;
  const settings = useResource<SettingsOf>(`/environments/${part(environment.app_id)}`);
  return (
    <Dialog title={`Settings of ${environment.name}`} close={close}>
      <Loaded from={settings}>
        {(data) => <EnvironmentForm environment={environment} settings={data} close={close} />}
      </Loaded>
    </Dialog>
  );
}

function EnvironmentForm(props: {
  readonly environment: EnvironmentOfList;
  readonly settings: SettingsOf;
  readonly close: () => void;
}) {
  const { environment, settings, close } = props;
  const [validation, setValidation] = useState(settings.validation);
  const [values, setValues] = useState<Readonly<Record<string, string>>>(
    Object.fromEntries(limits.map(([name]) => [name, String(settings.limits[name] ?? '')])),
  );
  const [main, setMain] = useState<'as' | 'main'>('as');
  if (!may('setEnvironment')) {
    return (
      <>
        <p>Records are checked: {settings.validation}.</p>
        <ul>
          {limits.map(([name, what]) => (
            <li key={name}>
              {what}: {settings.limits[name] ?? 'the default'}
            </li>
          ))}
        </ul>
        <button type="button" onClick={close}>
          Close
        </button>
      </>
    );
  }
  const save = async () => {
    const changed = Object.fromEntries(
      limits.map(([name]) => [name, (values[name] ?? '').trim() || 'default']),
    );
    await call('PATCH', `/environments/${part(environment.app_id)}`, {
      validation,
      limits: changed,
      ...(main === 'main' ? { main: true } : {}),
    });
    await reloadAccounts();
    close();
  };
  return (
    <Form label={`Settings of ${environment.name}`} submit="Save" work={save} cancel={close}>
      <Choice
        label="Records that are not as they should be"
        value={validation}
        set={setValidation}
        options={[
          ['strict', 'are refused'],
          ['lenient', 'are mended where that is possible'],
        ]}
      />
      {!environment.main && (
        <Choice
          label="Main Production"
          value={main}
          set={setMain}
          options={[
            ['as', 'stays as it is'],
            ['main', 'becomes this environment'],
          ]}
          hint="Only API keys of the main environment give tokens that delete users."
        />
      )}
      <fieldset>
        <legend>Limits: a number, none, or empty for the default</legend>
        {limits.map(([name, what]) => (
          <Field
            key={name}
            label={what}
            value={values[name] ?? ''}
            set={(value) => setValues({ ...values, [name]: value })}
          />
        ))}
      </fieldset>
    </Form>
  );
}

const roleTexts: Readonly<Record<Role, string>> = {
  operator: 'Operator: everything, in all accounts',
  administrator: 'Administrator: keys, environments and people',
  privacy: 'Privacy officer: users and deletions',
  viewer: 'Viewer: sees, changes nothing',
};

function People({ account }: { readonly account: Account }) {
  const isOperator = person.value?.role === 'operator';
  const people = useResource<Person[]>(
    isOperator ? '/people' : `/people?account_id=${part(account.account_id)}`,
  );
  const [email, setEmail] = useState('');
  const [role, setRole] = useState<Role>('viewer');
  const [link, setLink] = useState<{ readonly email: string; readonly url: string } | undefined>(undefined);
  const nameOfAccount = (id: string | null) =>
    id === null ? 'all' : (accounts.value.find(({ account_id }) => account_id === id)?.name ?? id);
  return (
    <section class="card">
      <h2>People</h2>
      <Loaded from={people}>
        {(data) => (
          <Table
            caption="People"
            rows={data}
            keyOf={({ person_id }) => person_id}
            empty="Nobody is here yet."
            columns={[
              { title: 'E-mail', text: (each) => each.email },
              { title: 'Role', text: (each) => each.role },
              { title: 'Account', text: (each) => nameOfAccount(each.account_id) },
              {
                title: 'State',
                text: (each) => stateOf(each),
                cell: (each) => (
                  <span class={each.state === 'active' ? 'chip good' : 'chip warn'}>{stateOf(each)}</span>
                ),
              },
              {
                title: 'Second factor',
                text: (each) => (each.signs_on ? 'at the provider' : each.second_factor ? 'yes' : 'no'),
              },
            ]}
            actions={(each) => (
              <Confirm
                button="Remove"
                of={each.email}
                title="Remove this person?"
                says={
                  <p>
                    <strong>{each.email}</strong> is signed out at once and cannot come back without another
                    invitation. What they did stays in the audit log.
                  </p>
                }
                confirm="Remove person"
                work={async () => {
                  await call('DELETE', `/people/${part(each.person_id)}`);
                  people.reload();
                }}
              />
            )}
          />
        )}
      </Loaded>
      {link !== undefined && (
        <div class="secret" role="status">
          <p>
            <strong>Give this link to {link.email}.</strong> It is good once, for 7 days, and is shown only
            now.
          </p>
          <p class="line">
            <code class="value">{link.url}</code>
            <Copy text={link.url} what="link" />
          </p>
        </div>
      )}
      <Form
        label="Invite somebody"
        submit="Invite"
        inline
        work={async () => {
          const made = await call<{ email: string; url: string }>('POST', '/people', {
            email,
            role,
            ...(role === 'operator' ? {} : { account_id: account.account_id }),
          });
          setLink(made);
          setEmail('');
          people.reload();
        }}
      >
        <Field label="E-mail of the new person" type="email" value={email} set={setEmail} required />
        <Choice
          label={`Role in ${account.name}`}
          value={role}
          set={setRole}
          options={roles
            .filter((each) => isOperator || each !== 'operator')
            .toReversed()
            .map((each) => [each, roleTexts[each]] as const)}
        />
      </Form>
    </section>
  );
}

function stateOf({ state, invited_until }: Person): string {
  if (state === 'active') return 'active';
  return invited_until === null ? 'invitation has ended' : 'invited';
}

function Accounts() {
  const [name, setName] = useState('');
  return (
    <section class="card">
      <h2>Accounts</h2>
      <Table
        caption="Accounts"
        rows={accounts.value}
        keyOf={({ account_id }) => account_id}
        empty="There is no account."
        columns={[
          { title: 'Name', text: (each) => each.name },
          {
            title: 'Account ID',
            text: (each) => each.account_id,
            cell: (each) => <code>{each.account_id}</code>,
          },
          { title: 'Environments', text: (each) => String(each.environments.length) },
        ]}
      />
      <Form
        label="New account"
        submit="Create account"
        inline
        work={async () => {
          await call('POST', '/accounts', { name: name.trim(), environments: ['Main Production'] });
          setName('');
          await reloadAccounts();
        }}
      >
        <Field
          label="Name of the new account"
          value={name}
          set={setName}
          hint="It begins with an environment Main Production."
          required
        />
      </Form>
    </section>
  );
}

type SessionOfList = {
  readonly id: string;
  readonly began_at: string;
  readonly ends_at: string;
  readonly address: string;
  readonly agent: string;
  readonly this_one: boolean;
};

/** Whose name another one has in it stands first. */
const browsers = ['Edg', 'OPR', 'Firefox', 'Chrome', 'Safari'];
const systems = ['Android', 'iPhone', 'iPad', 'Windows', 'Mac OS', 'Linux'];
const fullNames: Readonly<Record<string, string>> = { Edg: 'Edge', OPR: 'Opera' };

/** `Chrome on Linux`, as far as the header User-Agent says it. */
function browserOf(agent: string): string {
  const browser = browsers.find((name) => agent.includes(`${name}/`));
  const system = systems.find((name) => agent.includes(name));
  if (browser === undefined || system === undefined) return agent;
  return `${fullNames[browser] ?? browser} on ${system}`;
}

function OwnAccess() {
  const sessions = useResource<SessionOfList[]>('/sessions');
  const signsOn = person.value?.signs_on === true;
  return (
    <section class="card">
      <h2>Your access</h2>
      <p>
        You are {person.value?.email}, {roleTexts[person.value?.role ?? 'viewer']}.
        {signsOn && ' You sign in by your provider, where your password and second factor are.'}
      </p>
      {!signsOn && (
        <>
          <SecondFactor />
          <NewPassword done={sessions.reload} />
        </>
      )}
      <h3>Sessions</h3>
      <Loaded from={sessions}>
        {(data) => (
          <Table
            caption="Your sessions"
            rows={data}
            keyOf={({ id }) => id}
            empty="There is no session."
            columns={[
              { title: 'Began', text: (each) => each.began_at, cell: (each) => <Time at={each.began_at} /> },
              { title: 'From', text: (each) => each.address },
              {
                title: 'Browser',
                text: (each) => each.agent,
                cell: (each) => (
                  <span class="agent" title={each.agent}>
                    {browserOf(each.agent)}
                  </span>
                ),
              },
            ]}
            actions={(each) =>
              each.this_one ? (
                <span class="chip good">this one</span>
              ) : (
                <Confirm
                  button="End"
                  of={`the session from ${each.address}`}
                  title="End this session?"
                  says={<p>Whoever uses it has to sign in again.</p>}
                  confirm="End session"
                  work={async () => {
                    await call('DELETE', `/sessions/${part(each.id)}`);
                    sessions.reload();
                  }}
                />
              )
            }
          />
        )}
      </Loaded>
    </section>
  );
}

function NewPassword({ done }: { readonly done: () => void }) {
  const [password, setPassword] = useState('');
  const [next, setNext] = useState('');
  const [said, setSaid] = useState('');
  return (
    <details>
      <summary>Change your password</summary>
      <Form
        label="Change your password"
        submit="Change password"
        work={async () => {
          await call('PUT', '/password', { password, new_password: next });
          setPassword('');
          setNext('');
          setSaid('Your password is changed, and your other sessions have ended.');
          done();
        }}
      >
        <Field
          label="Present password"
          type="password"
          value={password}
          set={setPassword}
          complete="current-password"
          required
        />
        <Field
          label="New password"
          type="password"
          value={next}
          set={setNext}
          complete="new-password"
          hint="At least 10 characters."
          required
        />
      </Form>
      <p role="status">{said}</p>
    </details>
  );
}

function SecondFactor() {
  const [offered, setOffered] = useState<{ readonly secret: string; readonly uri: string } | undefined>(
    undefined,
  );
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  const { value } = person;
  if (value == null) return null;
  const change = (second_factor: boolean) => {
    person.value = { ...value, second_factor };
    setOffered(undefined);
    setPassword('');
    setCode('');
  };
  const passwordField = (
    <Field
      label="Your password"
      type="password"
      value={password}
      set={setPassword}
      complete="current-password"
      required
    />
  );
  if (value.second_factor) {
    return (
      <details>
        <summary>Second factor: on</summary>
        <Form
          label="Remove the second factor"
          submit="Remove second factor"
          danger
          work={async () => {
            await call('DELETE', '/second_factor', { password });
            change(false);
          }}
        >
          {passwordField}
        </Form>
      </details>
    );
  }
  return (
    <details>
      <summary>Second factor: off</summary>
      <p>With a second factor, signing in also takes six digits that an app on your phone shows.</p>
      {offered === undefined ? (
        <Form
          label="Set up a second factor"
          submit="Set up second factor"
          work={async () => setOffered(await call('POST', '/second_factor'))}
        />
      ) : (
        <Form
          label="Set up a second factor"
          submit="Turn on"
          work={async () => {
            await call('PUT', '/second_factor', { password, secret: offered.secret, code: code.trim() });
            change(true);
          }}
          cancel={() => setOffered(undefined)}
        >
          <p>
            Enter this key in your app, or on this phone <a href={offered.uri}>open it in the app</a>.
          </p>
          <p class="line">
            <code class="value">{offered.secret.replaceAll(/(.{4})(?=.)/g, '$1 ')}</code>
            <Copy text={offered.secret} what="key of the second factor" />
          </p>
          <Field
            label="Code"
            value={code}
            set={setCode}
            mode="numeric"
            complete="one-time-code"
            hint="The six digits that the app shows now."
            required
          />
          {passwordField}
        </Form>
      )}
    </details>
  );
}

type AuditEntry = {
  readonly at: string;
  readonly id: string;
  readonly actor: string;
  readonly actor_name: string;
  readonly address: string;
  readonly action: string;
  readonly app_id: string;
  readonly account_id: string;
  readonly key_id: string;
  readonly deletion_request_id: string;
  readonly details: object;
  readonly outcome: string;
};

const actors: Readonly<Record<string, string>> = {
  admin_token: 'ADMIN_TOKEN',
  command_line: 'command line',
  api_key: 'API key',
  person: '',
};

function AuditLog({ account }: { readonly account: Account | undefined }) {
  const isOperator = person.value?.role === 'operator';
  const path =
    isOperator || account === undefined ? '/audit' : `/audit?account_id=${part(account.account_id)}`;
  const log = useResource<AuditEntry[]>(path);
  return (
    <section class="card">
      <h2>Audit log</h2>
      <p class="muted">
        {isOperator ? 'The last 100 actions in all accounts.' : 'The last 100 actions in this account.'}{' '}
        <button type="button" class="small" onClick={log.reload}>
          Load again
        </button>
      </p>
      <Loaded from={log}>
        {(data) => (
          <Table
            caption="Audit log"
            rows={data}
            first={20}
            keyOf={({ id }) => id}
            empty="Nothing was done yet."
            columns={[
              { title: 'When', text: (each) => each.at, cell: (each) => <Time at={each.at} /> },
              {
                title: 'Who',
                text: (each) => [actors[each.actor] ?? each.actor, each.actor_name].join(' ').trim(),
              },
              { title: 'What', text: (each) => each.action.replaceAll('_', ' ') },
              {
                title: 'About',
                text: (each) => aboutOf(each),
                cell: (each) => <span class="about">{aboutOf(each)}</span>,
              },
              {
                title: 'Outcome',
                text: (each) => each.outcome,
                cell: (each) => (
                  <span class={each.outcome === 'done' ? 'chip good' : 'chip warn'}>{each.outcome}</span>
                ),
              },
              { title: 'From', text: (each) => each.address },
            ]}
          />
        )}
      </Loaded>
    </section>
  );
}

function aboutOf({ app_id, account_id, key_id, deletion_request_id, details }: AuditEntry): string {
  const named = Object.entries(details).map(
    ([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  const account = accounts.value.find((each) => each.account_id === account_id)?.name ?? account_id;
  const environment = accounts.value
    .flatMap(({ environments }) => environments)
    .find((each) => each.app_id === app_id)?.name;
  return [account, environment ?? app_id, key_id, deletion_request_id, ...named]
    .filter((text) => text !== '')
    .join(' · ');
}
