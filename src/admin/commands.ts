// All commands of administrators (command.ts), and what the console has to know about them.

import { otherActions } from '../contract/audit-actions.js';
import { mayDo, type Role, roles } from '../contract/roles.js';
import { rightsElsewhere } from './access.js';
import { actionsOf, type Command } from './command.js';
import { accountCommands } from './commands/accounts.js';
import { auditCommands } from './commands/audit.js';
import { caseCommands } from './commands/cases.js';
import { deletionCommands } from './commands/deletions.js';
import { deploymentCommands } from './commands/deployment.js';
import { keyCommands } from './commands/keys.js';
import { ledgerCommands } from './commands/ledger.js';
import { trafficCommands } from './commands/traffic.js';
import { userCommands } from './commands/users.js';

export const commands = {
  ...accountCommands,
  ...auditCommands,
  ...trafficCommands,
  ...ledgerCommands,
  ...keyCommands,
  ...deletionCommands,
  ...userCommands,
  ...caseCommands,
  ...deploymentCommands,
} satisfies Readonly<Record<string, Command>>;

export type CommandName = keyof typeof commands;

/** Every command with its name. */
export const namedCommands = Object.entries(commands) as readonly (readonly [CommandName, Command])[];

/** Which roles may do what, and the words for all actions of the audit log. The build puts this into the console. */
export const forConsole: {
  readonly rights: Readonly<Record<string, readonly Role[]>>;
  readonly actions: Readonly<Record<string, string>>;
} = {
  rights: Object.fromEntries(
    [...namedCommands.map(([name, { may }]) => [name, may] as const), ...Object.entries(rightsElsewhere)].map(
      ([name, allowed]) => [name, roles.filter((role) => mayDo(role, allowed))],
    ),
  ),
  actions: Object.assign({}, otherActions, ...namedCommands.map(([name, each]) => actionsOf(name, each))),
};
