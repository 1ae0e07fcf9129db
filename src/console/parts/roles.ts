// What each role may do, in a few words.

import type { Role } from '../../contract/roles.js';

export const roleTexts: Readonly<Record<Role, string>> = {
  operator: 'Operator: everything, in all accounts',
  administrator: 'Administrator: keys, environments and people',
  privacy: 'Privacy officer: users and deletions',
  viewer: 'Viewer: sees, changes nothing',
};
