// The administration's commands, by name: what `npm run admin -- …` takes and prints. Each returns a value
// that is printed as JSON.

import {
  AdministrationError,
  addEnvironment,
  createAccount,
  createApiKey,
  listAccounts,
  parseLimit,
  revokeApiKey,
  rotateApiKey,
  setEnvironment,
  showApiKey,
} from '../accounts/accounts.js';
import { createDemoAccount, findDemoAccount, loadDeployment } from '../accounts/deployment.js';
import type { Loading } from '../accounts/loading.js';
import { mirrorRegistry } from '../accounts/mirror.js';
import { readRegistry } from '../accounts/registry.js';
import { type LimitName, loads } from '../contract/limits.js';
import { createCrashPoint } from '../crash-point.js';
import { restoreDeletions } from '../deletion/mirror.js';
import { endDeletion, listDeletions, readDeletion } from '../deletion/request.js';
import { readMendingCounts } from '../ingest/mending-counts.js';
import { listRejected } from '../ingest/rejected-records.js';
import type { AdminContext } from './context.js';
import { listFailed, retryFailed } from './failed.js';

export const usage = `npm run admin -- COMMAND

  accounts list
  accounts create NAME --environment NAME [--environment NAME]…   the first one is Main Production
  environments add ACCOUNT_ID NAME
  environments set APP_ID [--main] [--validation strict|lenient] [--limit NAME=none|default|NUMBER]… [--allow-identity VALUE]…
  environments stats APP_ID            what a lenient environment mended, by reason
  rejected list APP_ID                 the last records that were refused: why and which field, never values
  keys create|rotate|revoke|show APP_ID
  failed list [--limit NUMBER]         rows that ClickHouse refused for their data
  failed retry                         sends them again
  deletions list [--limit NUMBER]      deletion requests, the newest first
  deletions show DELETION_REQUEST_ID   how far one is, and its evidence
  deletions end DELETION_REQUEST_ID    ends one that can never be carried out: its targets are lost
  restore                              loads the state into an emptied Redis
  bootstrap                            what a start does: load or create the state`;

/** Runs a command. Throws AdministrationError, whose message is for the administrator. */
export async function runCommand(context: AdminContext, args: readonly string[]): Promise<unknown> {
  const [subject, verb, ...rest] = args;
  const command = commands[`${subject} ${verb ?? ''}`.trim()];
  if (command === undefined) throw new AdministrationError(usage);
  return command(context, rest);
}

type Command = (context: AdminContext, args: readonly string[]) => Promise<unknown>;

const commands: Readonly<Record<string, Command>> = {
  'accounts list': ({ redis }) => listAccounts(redis),
  'accounts create': changing(({ redis }, args) => {
    const { positional, options } = parse(args, ['environment']);
    return createAccount(redis, one(positional, 'NAME'), options.environment ?? []);
  }),
  'environments add': changing(({ redis }, args) => {
    const [accountId, name, ...rest] = args;
    if (accountId === undefined || name === undefined || rest.length > 0)
      throw new AdministrationError(usage);
    return addEnvironment(redis, accountId, name);
  }),
  'environments set': changing(({ redis }, args) => {
    const { positional, options, flags } = parse(args, ['validation', 'limit', 'allow-identity'], ['main']);
    const validation = options.validation?.at(-1);
    if (validation !== undefined && validation !== 'strict' && validation !== 'lenient') {
      throw new AdministrationError('--validation must be strict or lenient');
    }
    const limits = Object.fromEntries(
      (options.limit ?? []).map((text) => {
        const [name, value] = text.split('=');
        return parseLimit(name ?? '', value ?? '');
      }),
    ) as Partial<Record<LimitName, number | 'none' | 'default'>>;
    return setEnvironment(redis, one(positional, 'APP_ID'), {
      limits,
      allowIdentities: options['allow-identity'] ?? [],
      ...(validation === undefined ? {} : { validation }),
      ...(flags.has('main') ? { main: true } : {}),
    });
  }),
  'environments stats': async ({ redis }, args) => {
    const appId = one(args, 'APP_ID');
    return { app_id: appId, mended: await readMendingCounts(redis, appId) };
  },
  'rejected list': async ({ redis }, args) => {
    const appId = one(args, 'APP_ID');
    const { environments } = await readRegistry(redis);
    if (!environments.has(appId)) throw new AdministrationError(`there is no environment ${appId}`);
    return listRejected(redis, appId);
  },
  'keys create': changing(({ redis }, args) => createApiKey(redis, one(args, 'APP_ID'))),
  'keys rotate': changing(({ redis }, args) => rotateApiKey(redis, one(args, 'APP_ID'))),
  'keys revoke': changing(({ redis }, args) => revokeApiKey(redis, one(args, 'APP_ID'))),
  'keys show': ({ redis }, args) => showApiKey(redis, one(args, 'APP_ID')),
  'failed list': ({ clickhouse }, args) => {
    const { options } = parse(args, ['limit']);
    return listFailed(clickhouse, Number(options.limit?.at(-1) ?? 100));
  },
  'failed retry': (context) => retryFailed(context),
  'deletions list': ({ redis }, args) => {
    const { options } = parse(args, ['limit']);
    return listDeletions(redis, Number(options.limit?.at(-1) ?? 100));
  },
  'deletions show': async ({ redis }, args) => {
    const request = await readDeletion(redis, one(args, 'DELETION_REQUEST_ID'));
    if (request === undefined) throw new AdministrationError('there is no such deletion request');
    return request;
  },
  'deletions end': async ({ redis }, args) => {
    const request = await readDeletion(redis, one(args, 'DELETION_REQUEST_ID'));
    if (request === undefined) throw new AdministrationError('there is no such deletion request');
    const ended = request.state === 'targets_lost' ? await endDeletion(redis, request) : undefined;
    if (ended === undefined) {
      throw new AdministrationError(
        `only a request whose targets are lost can be ended; this one is ${request.state}`,
      );
    }
    return ended;
  },
  restore: async (context) => ({ state: (await load(context, loads.restoreWaitMsMax)).how }),
  bootstrap: async (context) => {
    const { how } = await load(context, loads.startWaitMsMax);
    const demo = how === 'created' ? await createDemoAccount(context.redis) : undefined;
    if (demo !== undefined) await mirrorRegistry(context.redis, context.clickhouse);
    const account = demo?.account ?? (await findDemoAccount(context.redis));
    return {
      created: how === 'created',
      restored: how === 'restored',
      account_id: account?.account_id ?? null,
      environments: account?.environments ?? [],
      ...(demo === undefined ? {} : { api_key: demo.apiKey }),
    };
  },
};

/** A command that changes the registry: its second copy is written at once, when ClickHouse is there. */
function changing(command: Command): Command {
  return async (context, args) => {
    const result = await command(context, args);
    await mirrorRegistry(context.redis, context.clickhouse).catch(() => {
      context.log.warn('clickhouse is away: a worker will copy the change when it is back');
    });
    return result;
  };
}

function load({ redis, clickhouse, config }: AdminContext, waitMsMax: number) {
  const { shards, claimBytesMax } = config;
  const restoreMore = (loading: Loading) => restoreDeletions(clickhouse, loading);
  const crash = createCrashPoint(config.crashAt);
  return loadDeployment({ redis, clickhouse, shards, claimBytesMax, restoreMore, waitMsMax, crash });
}

type Parsed = {
  readonly positional: string[];
  readonly options: Readonly<Record<string, string[] | undefined>>;
  readonly flags: ReadonlySet<string>;
};

function parse(args: readonly string[], optionNames: string[], flagNames: string[] = []): Parsed {
  const positional: string[] = [];
  const options: Record<string, string[]> = {};
  const flags = new Set<string>();
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] as string;
    const name = arg.slice(2);
    if (!arg.startsWith('--')) {
      positional.push(arg);
    } else if (flagNames.includes(name)) {
      flags.add(name);
    } else {
      const value = args[++i];
      if (!optionNames.includes(name) || value === undefined) throw new AdministrationError(usage);
      options[name] = [...(options[name] ?? []), value];
    }
  }
  return { positional, options, flags };
}

function one(values: readonly string[], what: string): string {
  const [value, ...rest] = values;
  if (value === undefined || rest.length > 0)
    throw new AdministrationError(`exactly one ${what} is needed\n\n${usage}`);
  return value;
}
