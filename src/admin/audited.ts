// Puts the administration's commands under the audit log. Commands that begin with `list` or `show` change nothing; every
// other one leaves a line. What goes into the line is chosen by the names of parameters, so a value that nobody has
// thought of stays out.

import { AdministrationError, type EnvironmentSettings } from '../accounts/accounts.js';
import { StateNotLoaded } from '../accounts/registry.js';
import { type Actor, type AuditOptions, audited, type Subjects } from '../audit/audit.js';
import type { AuditAction } from '../contract/audit-actions.js';

type Commands = Readonly<Record<string, (parameters: never) => Promise<unknown>>>;

/** The same commands, done by an actor under the audit log. */
export function auditCommands<Given extends Commands>(
  commands: Given,
  options: AuditOptions,
  actor: Actor,
): Given {
  const entries = Object.entries(commands).map(([name, run]) => {
    if (/^(list|show)/.test(name)) return [name, run] as const;
    const underAudit = (parameters: unknown) =>
      audited(
        options,
        actor,
        {
          action: actionOf(name),
          ...subjectsOf(parameters),
          details: detailsOf(parameters),
        },
        () => run(parameters as never),
        {
          endingOf: (result) => ({ outcome: 'done', ...subjectsOf(result), ...exportOf(result) }),
          outcomeOfError: (error) =>
            error instanceof AdministrationError || error instanceof StateNotLoaded ? 'refused' : 'unknown',
          loadsState: loadingCommands.has(name),
        },
      );
    return [name, underAudit] as const;
  });
  return Object.fromEntries(entries) as Given;
}

/** Every command that is audited has its words among them. */
function actionOf(command: string): AuditAction {
  return command.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) as AuditAction;
}

const loadingCommands = new Set(['restore', 'bootstrap', 'restoreBackup']);

/** Of parameters and of results. */
const subjectNames: Readonly<Record<string, keyof Subjects>> = {
  accountId: 'account_id',
  account_id: 'account_id',
  appId: 'app_id',
  app_id: 'app_id',
  id: 'key_id',
  requestId: 'deletion_request_id',
  deletion_request_id: 'deletion_request_id',
};

function subjectsOf(value: unknown): Subjects {
  const found = Object.entries(fieldsOf(value)).flatMap(([name, field]) => {
    const subject = Object.hasOwn(subjectNames, name) ? subjectNames[name] : undefined;
    return subject !== undefined && typeof field === 'string' ? [[subject, field]] : [];
  });
  return Object.fromEntries(found);
}

/** The export that a command has made. */
function exportOf(result: unknown) {
  const { user_export_id } = fieldsOf(result);
  return typeof user_export_id === 'string' ? { details: { user_export_id } } : {};
}

/** Which settings of an environment are noted as they are. Of the identities that it allows, only how many. */
const settingIsNoted: Readonly<Record<keyof EnvironmentSettings, boolean>> = {
  main: true,
  validation: true,
  limits: true,
  writeKey: true,
  origins: true,
  importUntilMs: true,
  retainDays: true,
  allowIdentities: false,
  disallowIdentities: false,
};

/** Configuration, without a user's data. Of users, only how many. */
const detailNames = new Set([
  ...Object.entries(settingIsNoted).flatMap(([name, isNoted]) => (isNoted ? [name] : [])),
  'name',
  'environments',
  'overlap',
  'overlapMs',
  'base',
  'keepDays',
  'email',
  'role',
  'personId',
  'shards',
  'server',
]);

function detailsOf(parameters: unknown): Record<string, unknown> {
  const { settings, users, ...fields } = fieldsOf(parameters);
  const given = Object.entries({ ...fields, ...fieldsOf(settings) });
  const { allowIdentities, disallowIdentities } = fieldsOf(settings);
  return {
    ...Object.fromEntries(given.filter(([name]) => detailNames.has(name))),
    ...(Array.isArray(users) ? { users: users.length } : {}),
    ...(Array.isArray(allowIdentities) && allowIdentities.length > 0
      ? { allowed_identities: allowIdentities.length }
      : {}),
    ...(Array.isArray(disallowIdentities) && disallowIdentities.length > 0
      ? { disallowed_identities: disallowIdentities.length }
      : {}),
  };
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
