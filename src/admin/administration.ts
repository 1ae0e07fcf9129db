// Runs administrators' commands: checks the caller's rights and the parameters, writes a line in the audit log, and makes commands that are
// heavy for ClickHouse take turns. The command line and HTTP call it.

import type { Places } from '../concurrency.js';
import type { CommandAction } from '../contract/audit-actions.js';
import { mayDo } from '../contract/roles.js';
import type { AdminContext } from '../operations/context.js';
import { type Actor, audited, type Subjects } from '../registry/audit/audit.js';
import { checkOwn, Forbidden, operator, type Principal } from './access.js';
import {
  actionNamed,
  type Command,
  type CommandContext,
  type Fields,
  shapeOf,
  subjectNames,
} from './command.js';
import { type CommandName, commands } from './commands.js';
import { readParameters } from './parameters.js';
import { TakesTooLong } from './users.js';

export type Administration = {
  /**
   * Runs a command. Settles with a value to be printed as JSON. `nameOf`: the name by which the caller knows a parameter. Rejects with
   * AdministrationError, whose message is for the administrator, or with Forbidden, TakesTooLong, StateNotLoaded or AuditLogFull.
   */
  run(name: CommandName, given?: Fields, nameOf?: (field: string) => string): Promise<unknown>;
  readonly context: CommandContext;
};

/**
 * The administration for a caller. `places`: where heavy queries take turns, so that a person or an account with many of them waits, and
 * does not hold up other people's queries, deletions or storing.
 */
export function createAdministration(
  given: AdminContext & Partial<Pick<CommandContext, 'say'>>,
  actor: Actor,
  principal: Principal = operator,
  places?: Places,
): Administration {
  const context = { say: () => undefined, ...given, principal, caller: actor.name };
  const account = principal.role === 'operator' ? 'operators' : principal.accountId;
  const holder = { account, person: `${actor.kind} ${actor.name}` };
  return {
    context,
    run: async (name, fields = {}, nameOf) => {
      const command: Command = commands[name];
      if (!mayDo(principal.role, command.may)) throw new Forbidden();
      const params = readParameters(command, fields, nameOf);
      const work = async () => {
        const own = await ownOf(context, command, params);
        return underAudit(context, actor, name, command, own);
      };
      if (places === undefined || command.takesTurns !== true) return work();
      const result = await places.within(holder, work);
      if (result === 'busy') throw new TakesTooLong('Too many queries at once: try again later.');
      return result;
    },
  };
}

/**
 * The parameters, unless they name something of another account. If a command lists over all accounts, its list is narrowed to the caller's
 * account.
 */
async function ownOf(context: CommandContext, command: Command, params: Fields): Promise<Fields> {
  const { principal } = context;
  if (principal.role === 'operator') return params;
  const { [command.narrows ?? '']: _, ...named } = params;
  await checkOwn(context, principal.accountId, named);
  const isNamed = Object.hasOwn(shapeOf(command), 'account_id');
  return isNamed ? { ...params, account_id: principal.accountId } : params;
}

function underAudit(
  context: CommandContext,
  actor: Actor,
  name: CommandName,
  command: Command,
  params: Fields,
): Promise<unknown> {
  const work = () => command.run(context, params as never);
  if (command.audited === undefined) return work();
  const action = {
    action: (command.action?.(params as never) ?? actionNamed(name)) as CommandAction,
    ...subjectsOf(params),
    details: command.details?.(params as never) ?? {},
  };
  return audited(context, actor, action, work, {
    endingOf: (result) => ({
      outcome: 'done',
      ...subjectsOf(result),
      ...(command.detailsOfResult && { details: command.detailsOfResult(fieldsOf(result)) }),
    }),
    loadsState: command.loadsState === true,
    isKeptByLine: command.isKeptByLine === true,
  });
}

/** The subjects that parameters or a result name. */
function subjectsOf(value: unknown): Subjects {
  const found = Object.entries(fieldsOf(value)).flatMap(([name, field]) => {
    const subject = Object.hasOwn(subjectNames, name) ? subjectNames[name] : undefined;
    return subject !== undefined && typeof field === 'string' ? [[subject, field]] : [];
  });
  return Object.fromEntries(found);
}

function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {};
}
