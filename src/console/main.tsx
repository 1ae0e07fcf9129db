// The console: one page that shows what its address names.

import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { type Account, ApiError, call, type Person } from './api.js';
import { pages } from './pages/pages.js';
import { forgetDrafts } from './parts/draft.js';
import { Problem } from './parts/parts.js';
import { go, onLink, path } from './router.js';
import { account, accounts, chooseAccount, person, singleSignOn } from './session.js';
import { Invitation, SignIn } from './sign-in.js';

const retryMs = 2_000;

function App() {
  const [fault, setFault] = useState('');
  useEffect(() => {
    if (person.value !== undefined) return;
    const ask = () => {
      call<{ person: Person | null; single_sign_on: boolean }>('GET', '/session').then(
        (answer) => {
          setFault('');
          singleSignOn.value = answer.single_sign_on;
          person.value = answer.person;
        },
        (error: ApiError) => {
          setFault(error.message);
          setTimeout(ask, retryMs);
        },
      );
    };
    ask();
  }, []);
  if (path.value === '/invitation') return <Invitation />;
  if (person.value === undefined)
    return (
      <main class="way-in">
        <h1>Sluice</h1>
        <Problem text={fault} />
      </main>
    );
  return person.value === null ? <SignIn /> : <Shell person={person.value} />;
}

function Shell({ person: self }: { readonly person: Person }) {
  const [fault, setFault] = useState('');
  const [loaded, setLoaded] = useState(false);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = () => {
      call<Account[]>('GET', '/accounts').then(
        (found) => {
          accounts.value = found;
          setFault('');
          setLoaded(true);
        },
        (error: unknown) => {
          if (!(error instanceof ApiError)) throw error;
          setFault(error.message);
          timer = setTimeout(load, retryMs);
        },
      );
    };
    load();
    return () => clearTimeout(timer);
  }, [self.person_id]);
  const shown = pages.filter(({ isFor }) => isFor?.() ?? true);
  const page = shown.find((each) => each.path === path.value) ?? shown[0];
  useEffect(() => {
    document.title = `${page?.title} · Sluice`;
    // On narrow screens the links are wider than the screen.
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [page]);
  const signOut = async () => {
    await call('DELETE', '/session').catch((error: unknown) => {
      if (!(error instanceof ApiError)) throw error;
    });
    person.value = null;
    forgetDrafts();
    go('/');
  };
  return (
    <div class="shell">
      <a class="skip" href="#page">
        Skip to the page
      </a>
      <header class="top">
        <p class="brand">Sluice</p>
        {accounts.value.length > 1 ? (
          <select
            class="account"
            aria-label="Account"
            value={account.value?.account_id ?? ''}
            onChange={(event) => chooseAccount(event.currentTarget.value)}
          >
            {accounts.value.map(({ account_id, name }) => (
              <option key={account_id} value={account_id}>
                {name}
              </option>
            ))}
          </select>
        ) : (
          <span class="account">{account.value?.name}</span>
        )}
        <span class="who muted">
          {self.email} · {self.role}
        </span>
        <button type="button" class="small" onClick={() => void signOut()}>
          Sign out
        </button>
      </header>
      <nav aria-label="Pages">
        <ul>
          {shown.map(({ path: to, title }) => (
            <li key={to}>
              <a href={to} onClick={onLink} aria-current={page?.path === to ? 'page' : undefined}>
                {title}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main id="page" tabIndex={-1}>
        <Problem text={fault} />
        {loaded && page?.show(account.value)}
      </main>
    </div>
  );
}

const root = document.getElementById('console');
if (root !== null) render(<App />, root);
