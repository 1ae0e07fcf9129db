// The pages of the console, in the order of its navigation.

import type { ComponentChildren } from 'preact';
import type { Account } from '../api.js';
import { Brand, type IconName } from '../parts/icons.js';
import { later } from '../parts/later.js';
import { may } from '../session.js';
import { Overview } from './overview.js';

const desk = later(() => import('./desk.js'));
const rest = later(() => import('./rest.js'));

/** Loads the scripts of all pages in advance, so that each page opens at once. */
export function loadAhead(): void {
  desk.ahead();
  rest.ahead();
}

export type Page = {
  readonly path: string;
  /** A former address of the page. */
  readonly formerly?: string;
  readonly title: string;
  readonly icon: IconName;
  /** Whether the person who is signed in may see the page; absent: everybody may. */
  readonly isFor?: () => boolean;
  /** `account`: the chosen account; undefined while there is none. */
  readonly show: (account: Account | undefined) => ComponentChildren;
};

export const pages: readonly Page[] = [
  {
    path: '/',
    title: 'Overview',
    icon: 'bars',
    show: (account) => ofAccount(account, (chosen) => <Overview key={chosen.account_id} account={chosen} />),
  },
  {
    path: '/keys-and-access',
    title: 'Keys and access',
    icon: 'key',
    formerly: '/privacy-and-security',
    show: (account) =>
      ofAccount(account, (chosen) => (
        <rest.Later>{({ Security }) => <Security key={chosen.account_id} account={chosen} />}</rest.Later>
      )),
  },
  {
    path: '/users',
    title: 'Users',
    icon: 'person',
    isFor: () => may('lookUpUser'),
    show: (account) =>
      ofAccount(account, (chosen) => (
        <desk.Later>{({ Users }) => <Users key={chosen.account_id} account={chosen} />}</desk.Later>
      )),
  },
  {
    path: '/deletions',
    title: 'Deletions',
    icon: 'bin',
    show: (account) =>
      ofAccount(account, (chosen) => (
        <desk.Later>{({ Deletions }) => <Deletions key={chosen.account_id} account={chosen} />}</desk.Later>
      )),
  },
  {
    path: '/cases',
    title: 'Cases',
    icon: 'folder',
    isFor: () => may('listCases'),
    show: (account) =>
      ofAccount(account, (chosen) => (
        <desk.Later>{({ Cases }) => <Cases key={chosen.account_id} account={chosen} />}</desk.Later>
      )),
  },
  {
    path: '/data-quality',
    title: 'Data quality',
    icon: 'check',
    show: (account) =>
      ofAccount(account, (chosen) => (
        <rest.Later>
          {({ DataQuality }) => <DataQuality key={chosen.account_id} account={chosen} />}
        </rest.Later>
      )),
  },
  {
    path: '/live',
    title: 'Live',
    icon: 'pulse',
    isFor: () => may('watchLive'),
    show: (account) =>
      ofAccount(account, (chosen) => (
        <rest.Later>{({ Live }) => <Live key={chosen.account_id} account={chosen} />}</rest.Later>
      )),
  },
  {
    path: '/operations',
    title: 'Operations',
    icon: 'servers',
    isFor: () => may('showDeployment'),
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

function ofAccount(account: Account | undefined, show: (account: Account) => ComponentChildren) {
  return account === undefined ? (
    <p class="empty">There is no account yet. An operator creates one in Settings.</p>
  ) : (
    show(account)
  );
}

/** The Event Visualizer, which is shown without the navigation. */
export function VisualizerPage({ isOff }: { readonly isOff: boolean }) {
  return <rest.Later>{({ Visualizer }) => <Visualizer isOff={isOff} />}</rest.Later>;
}

/** A certificate as a page to print. */
export function PrintedCertificate() {
  return <desk.Later>{({ CertificatePage }) => <CertificatePage />}</desk.Later>;
}

/** The check of a certificate, which everybody may use. */
export function CertificateCheck() {
  return <desk.Later>{({ VerifyPage }) => <VerifyPage />}</desk.Later>;
}

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
