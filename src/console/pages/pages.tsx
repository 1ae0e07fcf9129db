// The pages of the console, in the order of its navigation.

import { type ComponentChildren, Fragment } from 'preact';
import type { Account } from '../api.js';
import type { Right } from '../commands.js';
import { Brand, type IconName } from '../parts/icons.js';
import { later } from '../parts/later.js';
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
  /** The command for whose sake a person sees the page; absent: everybody sees it. */
  readonly isFor?: Right;
} & (
  | {
      /** The page of an account. */
      readonly show: (account: Account) => ComponentChildren;
      readonly showAlways?: never;
    }
  | {
      /** The page, for one that can be shown while there is no account. */
      readonly showAlways: (account: Account | undefined) => ComponentChildren;
      readonly show?: never;
    }
);

export const pages: readonly Page[] = [
  {
    path: '/',
    title: 'Overview',
    icon: 'bars',
    show: (account) => <Overview account={account} />,
  },
  {
    path: '/keys-and-access',
    title: 'Keys and access',
    icon: 'key',
    formerly: '/privacy-and-security',
    show: (account) => <rest.Later>{({ Security }) => <Security account={account} />}</rest.Later>,
  },
  {
    path: '/users',
    title: 'Users',
    icon: 'person',
    isFor: 'lookUpUser',
    show: (account) => <desk.Later>{({ Users }) => <Users account={account} />}</desk.Later>,
  },
  {
    path: '/deletions',
    title: 'Deletions',
    icon: 'bin',
    show: (account) => <desk.Later>{({ Deletions }) => <Deletions account={account} />}</desk.Later>,
  },
  {
    path: '/cases',
    title: 'Cases',
    icon: 'folder',
    isFor: 'listCases',
    show: (account) => <desk.Later>{({ Cases }) => <Cases account={account} />}</desk.Later>,
  },
  {
    path: '/data-quality',
    title: 'Data quality',
    icon: 'check',
    show: (account) => <rest.Later>{({ DataQuality }) => <DataQuality account={account} />}</rest.Later>,
  },
  {
    path: '/live',
    title: 'Live',
    icon: 'pulse',
    isFor: 'watchLive',
    show: (account) => <rest.Later>{({ Live }) => <Live account={account} />}</rest.Later>,
  },
  {
    path: '/operations',
    title: 'Operations',
    icon: 'servers',
    isFor: 'showDeployment',
    showAlways: () => <rest.Later>{({ Operations }) => <Operations />}</rest.Later>,
  },
  {
    path: '/settings',
    title: 'Settings',
    icon: 'sliders',
    showAlways: (account) => (
      <rest.Later>{({ Settings }) => <Settings key={account?.account_id} account={account} />}</rest.Later>
    ),
  },
  {
    path: '/api',
    title: 'API',
    icon: 'angles',
    showAlways: (account) => (
      <rest.Later>{({ Reference }) => <Reference key={account?.account_id} account={account} />}</rest.Later>
    ),
  },
];

/** What a page shows. `account`: the chosen account; undefined while there is none. */
export function PageOf(props: { readonly page: Page; readonly account: Account | undefined }) {
  const { page, account } = props;
  if (page.showAlways !== undefined) return <>{page.showAlways(account)}</>;
  if (account === undefined)
    return <p class="empty">There is no account yet. An operator creates one in Settings.</p>;
  return <Fragment key={account.account_id}>{page.show(account)}</Fragment>;
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
