// The pages of the console, in the order of its navigation.

import { type ComponentChildren, Fragment } from 'preact';
import type { Account } from '../api.js';
import type { Right } from '../commands.js';
import { Brand, type IconName } from '../parts/icons.js';
import { later } from '../parts/later.js';
import { Overview } from './overview.js';

export const desk = later(() => import('./desk.js'));
export const rest = later(() => import('./rest.js'));

/** Loads the scripts of all pages in advance, so that each page opens at once. */
export function loadAhead(): void {
  desk.ahead();
  rest.ahead();
}

type Page = {
  readonly path: string;
  /** A former address of the page. */
  readonly formerly?: string;
  readonly title: string;
  readonly icon: IconName;
  /** The command for whose sake a person sees the page; absent: everybody sees it. */
  readonly isFor?: Right;
  /** `account`: the chosen account; undefined while there is none. */
  readonly show: (account: Account | undefined) => ComponentChildren;
};

/** Shows the page of an account. */
function ofAccount(show: (account: Account) => ComponentChildren): Page['show'] {
  return (account) =>
    account === undefined ? (
      <p class="empty">There is no account yet. An operator creates one in Settings.</p>
    ) : (
      <Fragment key={account.account_id}>{show(account)}</Fragment>
    );
}

export const pages: readonly Page[] = [
  {
    path: '/',
    title: 'Overview',
    icon: 'bars',
    show: ofAccount((account) => <Overview account={account} />),
  },
  {
    path: '/keys-and-access',
    title: 'Keys and access',
    icon: 'key',
    formerly: '/privacy-and-security',
    show: ofAccount((account) => <rest.Later>{({ Security }) => <Security account={account} />}</rest.Later>),
  },
  {
    path: '/users',
    title: 'Users',
    icon: 'person',
    isFor: 'lookUpUser',
    show: ofAccount((account) => <desk.Later>{({ Users }) => <Users account={account} />}</desk.Later>),
  },
  {
    path: '/deletions',
    title: 'Deletions',
    icon: 'bin',
    show: ofAccount((account) => (
      <desk.Later>{({ Deletions }) => <Deletions account={account} />}</desk.Later>
    )),
  },
  {
    path: '/cases',
    title: 'Cases',
    icon: 'folder',
    isFor: 'listCases',
    show: ofAccount((account) => <desk.Later>{({ Cases }) => <Cases account={account} />}</desk.Later>),
  },
  {
    path: '/data-quality',
    title: 'Data quality',
    icon: 'check',
    show: ofAccount((account) => (
      <rest.Later>{({ DataQuality }) => <DataQuality account={account} />}</rest.Later>
    )),
  },
  {
    path: '/live',
    title: 'Live',
    icon: 'pulse',
    isFor: 'watchLive',
    show: ofAccount((account) => <rest.Later>{({ Live }) => <Live account={account} />}</rest.Later>),
  },
  {
    path: '/operations',
    title: 'Operations',
    icon: 'servers',
    isFor: 'showDeployment',
    show: () => <rest.Later>{({ Operations }) => <Operations />}</rest.Later>,
  },
  {
    path: '/settings',
    title: 'Settings',
    icon: 'sliders',
    show: (account) => (
      <rest.Later>{({ Settings }) => <Settings key={account?.account_id} account={account} />}</rest.Later>
    ),
  },
  {
    path: '/api',
    title: 'API',
    icon: 'angles',
    show: (account) => (
      <rest.Later>{({ Reference }) => <Reference key={account?.account_id} account={account} />}</rest.Later>
    ),
  },
];

/** Shown to people whose account requires a second factor: when they first sign in, or once an administrator requires it. */
export function FirstSecondFactor() {
  return (
    <main class="way-in">
      <h1>
        <Brand />
      </h1>
      <div class="card">
        <p role="status">
          <strong>Your account requires a second factor.</strong> Until you have set it up, nothing of the
          account is shown. Then you are where you were, and what you had entered is still there.
        </p>
        <rest.Later>{({ SecondFactor }) => <SecondFactor open />}</rest.Later>
      </div>
    </main>
  );
}
