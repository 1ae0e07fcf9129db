// The roles, and what each may do, in a few words.

import type { Role } from '../../contract/roles.js';

export const roleNames: Readonly<Record<Role, string>> = {
  operator: 'operator',
  administrator: 'administrator',
  privacy: 'privacy officer',
  viewer: 'viewer',
};

export const roleTexts: Readonly<Record<Role, string>> = {
  operator: 'Operator: everything, in all accounts',
  administrator: 'Administrator: keys, environments and people',
  privacy: 'Privacy officer: users and deletions',
  viewer: 'Viewer: may look, but change nothing',
};
