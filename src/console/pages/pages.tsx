// The pages of the console, in the order of its navigation.

import type { ComponentChildren } from 'preact';
import type { Account } from '../api.js';
import { may } from '../session.js';
import { DataQuality } from './data-quality.js';
import { Deletions } from './deletions.js';
import { Live } from './live.js';
import { Overview } from './overview.js';
import { Reference } from './reference.js';
import { Security } from './security.js';
import { Settings } from './settings.js';
import { Users } from './users.js';

export type Page = {
  readonly path: string;
  readonly title: string;
  /** Whether the page is for the person who is signed in; without this, it is for everybody. */
  readonly isFor?: () => boolean;
  /** `account`: the chosen one; undefined while there is none. */
  readonly show: (account: Account | undefined) => ComponentChildren;
};

export const pages: readonly Page[] = [
  {
    path: '/',
    title: 'Overview',
    show: (account) => ofAccount(account, (chosen) => <Overview key={chosen.account_id} account={chosen} />),
  },
  {
    path: '/privacy-and-security',
    title: 'Privacy and security',
    show: (account) => ofAccount(account, (chosen) => <Security key={chosen.account_id} account={chosen} />),
  },
  {
    path: '/users',
    title: 'Users',
    isFor: () => may('lookUpUser'),
    show: (account) => ofAccount(account, (chosen) => <Users key={chosen.account_id} account={chosen} />),
  },
  {
    path: '/deletions',
    title: 'Deletions',
    show: (account) => ofAccount(account, (chosen) => <Deletions key={chosen.account_id} account={chosen} />),
  },
  {
    path: '/data-quality',
    title: 'Data quality',
    show: (account) =>
      ofAccount(account, (chosen) => <DataQuality key={chosen.account_id} account={chosen} />),
  },
  {
    path: '/live',
    title: 'Live',
    isFor: () => may('watchLive'),
    show: (account) => ofAccount(account, (chosen) => <Live key={chosen.account_id} account={chosen} />),
  },
  {
    path: '/settings',
    title: 'Settings',
    show: (account) => <Settings key={account?.account_id} account={account} />,
  },
  {
    path: '/api',
    title: 'API',
    show: (account) => <Reference key={account?.account_id} account={account} />,
  },
];

function ofAccount(account: Account | undefined, show: (account: Account) => ComponentChildren) {
  return account === undefined ? (
    <p class="empty">There is no account yet. An operator creates one in Settings.</p>
  ) : (
    show(account)
  );
}
