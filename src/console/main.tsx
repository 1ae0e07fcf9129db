// The console: a single document that shows the page named by its address.

import { render } from 'preact';
import { useEffect } from 'preact/hooks';
import { ApiError, call, type Person, reloadAccounts } from './api.js';
import { desk, FirstSecondFactor, loadAhead, pages, rest } from './pages/pages.js';
import { forgetDrafts } from './parts/draft.js';
import { keepFocus } from './parts/focus.js';
import { ActionButton } from './parts/form.js';
import { Brand, Icon } from './parts/icons.js';
import { Loaded } from './parts/parts.js';
import { useLoad } from './parts/resource.js';
import { roleNames } from './parts/roles.js';
import { keepTexts } from './parts/translated.js';
import { showUnseen } from './parts/unseen.js';
import { go, onLink, path } from './router.js';
import { account, accounts, chooseAccount, leave, may, person, singleSignOn } from './session.js';
import { Invitation, SignIn } from './sign-in.js';

function App() {
  const session = useLoad(person.value === undefined ? '/session' : undefined, async () => {
    const found = await call<'showSession'>('GET', '/session');
    singleSignOn.value = found.single_sign_on;
    person.value = found.person;
    return found;
  });
  if (path.value === '/invitation') return <Invitation />;
  if (path.value === '/verify') return <desk.Later>{({ VerifyPage }) => <VerifyPage />}</desk.Later>;
  if (path.value === '/visualizer') return <rest.Later>{({ Visualizer }) => <Visualizer />}</rest.Later>;
  if (person.value === undefined)
    return (
      <main class="way-in">
        <h1>
          <Brand />
        </h1>
        <Loaded from={session}>{() => null}</Loaded>
      </main>
    );
  if (person.value === null) return <SignIn />;
  if (person.value.needs_second_factor && !person.value.second_factor) return <FirstSecondFactor />;
  if (path.value === '/certificate')
    return <desk.Later>{({ CertificatePage }) => <CertificatePage />}</desk.Later>;
  return <Shell person={person.value} />;
}

const accountsEveryMs = 30_000;

function Shell({ person: self }: { readonly person: Person }) {
  // Repeated, so that even a page that requests nothing else notices when its reader's access has changed.
  const loaded = useLoad(self.person_id, reloadAccounts, accountsEveryMs);
  const shown = pages.filter(({ isFor }) => isFor === undefined || may(isFor));
  const page = shown.find((each) => each.path === path.value || each.formerly === path.value);
  useEffect(loadAhead, []);
  useEffect(() => {
    document.title = `${page?.title ?? 'No such page'} · Sluice`;
    // On narrow screens the links do not all fit, so the current one is scrolled into view. After scrollIntoView, Tab would begin at it.
    const link = document.querySelector<HTMLElement>('nav [aria-current]');
    const nav = link?.closest('nav');
    if (link && nav) nav.scrollLeft = link.offsetLeft - (nav.clientWidth - link.offsetWidth) / 2;
  }, [page]);
  // If this fails, the session continues, so the page must not look signed out.
  const signOut = async () => {
    await call('DELETE', '/session').catch((error: unknown) => {
      if (!(error instanceof ApiError && error.status === 401)) throw error;
    });
    leave();
    forgetDrafts();
    go('/');
  };
  return (
    <div class="shell">
      <a class="skip" href="#page">
        Skip to the page
      </a>
      <header class="top">
        <p class="brand">
          <Brand />
        </p>
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
          {self.email} · {roleNames[self.role]}
        </span>
        <ActionButton button="Sign out" small work={signOut} />
      </header>
      <nav aria-label="Pages">
        <ul>
          {shown.map(({ path: to, title, icon }) => (
            <li key={to}>
              <a href={to} onClick={onLink} aria-current={page?.path === to ? 'page' : undefined}>
                <Icon of={icon} />
                {title}
              </a>
            </li>
          ))}
          <li>
            <a href="/docs" target="_blank" rel="noopener">
              <Icon of="book" />
              Documentation
            </a>
          </li>
        </ul>
      </nav>
      <main id="page" tabIndex={-1}>
        <Loaded from={loaded}>{() => page?.show(account.value) ?? <NoSuchPage />}</Loaded>
      </main>
    </div>
  );
}

function NoSuchPage() {
  return (
    <>
      <h1>No such page</h1>
      <p>
        There is no page at <code>{path.value}</code>, or your role does not let you see it.{' '}
        <a href="/" onClick={onLink}>
          Go to the overview
        </a>
      </p>
    </>
  );
}

const root = document.getElementById('console');
if (root !== null) {
  keepTexts(root);
  showUnseen();
  render(<App />, root);
  keepFocus(root);
}
