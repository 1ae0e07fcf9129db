// `npm run admin -- …`: from the words of the command line to a command and its object.

import { readFileSync } from 'node:fs';
import {
  AdministrationError,
  parseImportUntil,
  parseLimit,
  parseRetainDays,
  parseValidation,
  parseWriteKey,
} from '../accounts/accounts.js';
import { parseOverlap } from '../accounts/api-keys.js';
import { parseOrigins } from '../accounts/origins.js';
import { administration, storing } from '../contract/limits.js';
import { parseRole } from '../people/people.js';
import { keyIndex } from '../tuning.js';
import { type AdminCommands, checkCertificate } from './commands.js';

export const usage = `npm run admin -- COMMAND

  accounts list
  accounts create NAME --environment NAME [--environment NAME]…   the first one is Main Production
  accounts callback ACCOUNT_ID [--url URL | --none | --test]   who is called when a deletion is complete; the secret is shown once
  environments add ACCOUNT_ID NAME
  environments set APP_ID [--main] [--validation strict|lenient] [--limit NAME=none|default|NUMBER]… [--allow-identity VALUE]… [--disallow-identity VALUE]…
                       [--write-key required|optional] [--origin any|none|apps|ORIGIN]…
                       [--import-until DATE|none]   the token for imports is shown once
                       [--retain-days NUMBER|none]   events that are older go within a day, and users without events since
  environments show APP_ID             its settings
  environments stats APP_ID            what it mended, ignored and refused, and repeats that say something else
  rejected list APP_ID                 the last records that were refused: why and which field, never values
  keys create APP_ID [--name NAME]     the key is shown once; further keys need names
  keys list APP_ID                     when each was last used, and when it expires
  keys rotate APP_ID [--name NAME] [--overlap 24h]   replaces all keys, or one; they end at once, or that much later
  keys revoke APP_ID [ID]              all keys, or one
  keys show APP_ID                     when the latest was created
  write-keys create APP_ID [--name NAME]   the key is shown once
  write-keys list APP_ID
  write-keys revoke APP_ID ID
  people invite EMAIL --role operator|administrator|privacy|viewer [--account ACCOUNT_ID]
                       a link to the console, good once, for 7 days; again: they choose a new password
  people list [--account ACCOUNT_ID]
  people remove PERSON_ID
  failed list [--limit NUMBER]         rows that ClickHouse refused for their data
  failed retry                         sends them again
  keys-index status                    the index of idempotency keys: how many, how large, since when it is needed
  keys-index rebuild                   has the workers add the keys of all stored rows to it again
  deletions list [--limit NUMBER] [--account ACCOUNT_ID] [--state STATE] [--reference TEXT]
                                       deletion requests, the newest first
  deletions show DELETION_REQUEST_ID   the progress of one, and its evidence
  deletions end DELETION_REQUEST_ID    ends one that can never be carried out: its targets are lost
  certificate verify FILE [--key FILE]  whether the certificate of a deletion is genuine; with a public key in FILE without the service
  shards list                          which ClickHouse server has which shard, how large it is, and what waits for it
  shards move SHARD… --to SERVER       moves shards to another server; again: continues; servers count from 0
  shards balance                       moves shards until each server has equally many
  backup create [NAME] [--base NAME] [--keep-days NUMBER]   of ClickHouse; with a base only what changed since it
  backup list                          backups that have not expired, newest first
  backup restore NAME --yes            replaces the data in ClickHouse, then repeats the deletions since the backup
  audit list [--limit NUMBER]          who did what, newest first
  state compare                        whether Redis or ClickHouse was set back to older data, and what is missing
  state recover                        goes on with a ClickHouse that was set back: deletes again, frees the keys of what is gone
  restore                              loads the state into an emptied Redis
  bootstrap                            what a start does: load or create the state`;

/** Runs the command that these words name. Words that name none reject with AdministrationError and the usage. */
export async function runCommandLine(commands: AdminCommands, words: readonly string[]): Promise<unknown> {
  const [subject, verb, ...args] = words;
  const name = `${subject} ${verb ?? ''}`.trim();
  const run = Object.hasOwn(commandLines, name) ? commandLines[name] : undefined;
  if (run === undefined) throw new AdministrationError(usage);
  return run(commands, args);
}

type CommandLine = (commands: AdminCommands, args: readonly string[]) => Promise<unknown>;

const commandLines: Readonly<Record<string, CommandLine>> = {
  'accounts list': (commands) => commands.listAccounts({}),
  'accounts create': (commands, args) => {
    const { positional, options } = parse(args, ['environment']);
    return commands.createAccount({
      name: one(positional, 'NAME'),
      environments: options.environment ?? [],
    });
  },
  'accounts callback': (commands, args) => {
    const { positional, options, flags } = parse(args, ['url'], ['none', 'test']);
    const accountId = one(positional, 'ACCOUNT_ID');
    const url = options.url?.at(-1);
    if ((url === undefined ? 0 : 1) + flags.size > 1) throw new AdministrationError(usage);
    if (url !== undefined) return commands.setCallback({ accountId, url });
    if (flags.has('none')) return commands.removeCallback({ accountId });
    return flags.has('test') ? commands.testCallback({ accountId }) : commands.showCallback({ accountId });
  },
  'environments add': (commands, args) => {
    const [accountId, name, ...rest] = args;
    if (accountId === undefined || name === undefined || rest.length > 0)
      throw new AdministrationError(usage);
    return commands.addEnvironment({ accountId, name });
  },
  'environments set': (commands, args) => {
    const { positional, options, flags } = parse(
      args,
      [
        'validation',
        'limit',
        'allow-identity',
        'disallow-identity',
        'write-key',
        'origin',
        'import-until',
        'retain-days',
      ],
      ['main'],
    );
    const validation = options.validation?.at(-1);
    const writeKey = options['write-key']?.at(-1);
    const importUntil = options['import-until']?.at(-1);
    const retainDays = options['retain-days']?.at(-1);
    return commands.setEnvironment({
      appId: one(positional, 'APP_ID'),
      settings: {
        limits: Object.fromEntries((options.limit ?? []).map(limitOf)),
        allowIdentities: options['allow-identity'] ?? [],
        disallowIdentities: options['disallow-identity'] ?? [],
        ...(validation === undefined ? {} : { validation: parseValidation(validation) }),
        ...(options.origin === undefined ? {} : { origins: parseOrigins(options.origin) }),
        ...(writeKey === undefined ? {} : { writeKey: parseWriteKey(writeKey) }),
        ...(importUntil === undefined ? {} : { importUntilMs: parseImportUntil(importUntil) }),
        ...(retainDays === undefined ? {} : { retainDays: parseRetainDays(retainDays) }),
        ...(flags.has('main') ? { main: true } : {}),
      },
    });
  },
  'environments show': (commands, args) => commands.showEnvironment({ appId: one(args, 'APP_ID') }),
  'environments stats': (commands, args) => commands.showStats({ appId: one(args, 'APP_ID') }),
  'rejected list': (commands, args) => commands.listRejected({ appId: one(args, 'APP_ID') }),
  'keys create': (commands, args) => {
    const { positional, options } = parse(args, ['name']);
    return commands.createKey({ appId: one(positional, 'APP_ID'), name: options.name?.at(-1) });
  },
  'keys list': (commands, args) => commands.listKeys({ appId: one(args, 'APP_ID') }),
  'keys rotate': (commands, args) => {
    const { positional, options } = parse(args, ['name', 'overlap']);
    const overlap = options.overlap?.at(-1);
    return commands.rotateKey({
      appId: one(positional, 'APP_ID'),
      name: options.name?.at(-1),
      overlapMs: overlap === undefined ? undefined : parseOverlap(overlap),
    });
  },
  'keys revoke': (commands, args) => {
    const [appId, ...ids] = args;
    if (ids.length === 0) return commands.revokeKey({ appId: one(args, 'APP_ID') });
    return commands.revokeKey({ appId: appId ?? '', id: one(ids, 'ID') });
  },
  'keys show': (commands, args) => commands.showKey({ appId: one(args, 'APP_ID') }),
  'write-keys create': (commands, args) => {
    const { positional, options } = parse(args, ['name']);
    return commands.createWriteKey({ appId: one(positional, 'APP_ID'), name: options.name?.at(-1) });
  },
  'write-keys list': (commands, args) => commands.listWriteKeys({ appId: one(args, 'APP_ID') }),
  'write-keys revoke': (commands, args) => {
    const [appId, ...ids] = args;
    return commands.revokeWriteKey({ appId: appId ?? '', id: one(ids, 'ID') });
  },
  'people invite': (commands, args) => {
    const { positional, options } = parse(args, ['role', 'account']);
    return commands.invitePerson({
      email: one(positional, 'EMAIL'),
      role: parseRole(options.role?.at(-1)),
      accountId: options.account?.at(-1),
    });
  },
  'people list': (commands, args) =>
    commands.listPeople({ accountId: parse(args, ['account']).options.account?.at(-1) }),
  'people remove': (commands, args) => commands.removePerson({ personId: one(args, 'PERSON_ID') }),
  'failed list': (commands, args) => commands.listFailed({ countMax: countOf(args) }),
  'failed retry': (commands) => commands.retryFailed(),
  'keys-index status': (commands) => commands.showKeyIndex(),
  'keys-index rebuild': async (commands) => {
    await commands.rebuildKeyIndex();
    return untilRebuilt(commands);
  },
  'deletions list': async (commands, args) => {
    const { options } = parse(args, ['limit', 'account', 'state', 'reference']);
    const limit = options.limit?.at(-1);
    const countMax = limit === undefined ? administration.listedMax : wholeNumber('--limit', limit);
    const found: object[] = [];
    let cursor: string | undefined;
    do {
      const page = await commands.listDeletions({
        accountId: options.account?.at(-1),
        state: options.state?.at(-1),
        reference: options.reference?.at(-1),
        cursor,
      });
      found.push(...page.deletions);
      cursor = page.cursor;
    } while (cursor !== undefined && found.length < countMax);
    return found.slice(0, countMax);
  },
  'deletions show': (commands, args) =>
    commands.showDeletion({ requestId: one(args, 'DELETION_REQUEST_ID') }),
  'deletions end': (commands, args) => commands.endDeletion({ requestId: one(args, 'DELETION_REQUEST_ID') }),
  'certificate verify': (commands, args) => {
    const { text, keyText } = certificateOf(args);
    return commands.showVerified({ text, keyText });
  },
  'shards list': (commands) => commands.listShards(),
  'shards move': (commands, args) => {
    const { positional, options } = parse(args, ['to']);
    const to = options.to?.at(-1);
    if (positional.length === 0 || to === undefined) throw new AdministrationError(usage);
    return commands.moveShards({
      shards: positional.map(shardNumber),
      server: placeNumber('--to', to),
      say: sayProgress,
    });
  },
  'shards balance': (commands) => commands.balanceShards({ say: sayProgress }),
  'backup create': (commands, args) => {
    const { positional, options } = parse(args, ['base', 'keep-days']);
    const keepDays = options['keep-days']?.at(-1);
    return commands.createBackup({
      name: positional.length === 0 ? undefined : one(positional, 'NAME'),
      base: options.base?.at(-1),
      keepDays: keepDays === undefined ? undefined : wholeNumber('--keep-days', keepDays),
    });
  },
  'state compare': (commands) => commands.showState(),
  'state recover': (commands) => commands.recoverState(),
  'backup list': (commands) => commands.listBackups(),
  'backup restore': (commands, args) => {
    const { positional, flags } = parse(args, [], ['yes']);
    const name = one(positional, 'NAME');
    if (!flags.has('yes')) {
      throw new AdministrationError(
        `this replaces everything that ClickHouse has by the backup ${name}: add --yes if that is what you want`,
      );
    }
    return commands.restoreBackup({ name });
  },
  'audit list': (commands, args) => commands.listAudit({ countMax: countOf(args) }),
  restore: (commands) => commands.restore(),
  bootstrap: (commands) => commands.bootstrap(),
};

/** The workers continue, whether or not the caller waits. */
async function untilRebuilt(commands: AdminCommands) {
  for (let said = ''; ; ) {
    const index = await commands.showKeyIndex();
    const left = index.shards.filter(({ rebuild }) => rebuild !== null);
    if (left.length === 0) return index;
    const line = left
      .map(({ shard, rebuild }) => {
        if (rebuild?.to == null) return `shard ${shard}: no worker has begun`;
        return `shard ${shard}: ${rebuild.done_to === null ? 'begun' : `up to ${rebuild.done_to}`} of ${rebuild.to}`;
      })
      .join(', ');
    if (line !== said) sayProgress(line);
    said = line;
    await new Promise((resolve) => setTimeout(resolve, keyIndex.rebuildPollMs));
  }
}

function sayProgress(line: string): void {
  process.stderr.write(`${line}\n`);
}

function shardNumber(text: string): number {
  if (!/^\d+$/.test(text) || Number(text) >= storing.shardsMax)
    throw new AdministrationError('a shard is a number from 0');
  return Number(text);
}

/** Carries out a command that needs no service; undefined if the words name no such command. */
export function runWithoutService(words: readonly string[]): unknown {
  const [subject, verb, ...args] = words;
  if (subject !== 'certificate' || verb !== 'verify' || !args.includes('--key')) return undefined;
  const { text, keyText } = certificateOf(args);
  return keyText === undefined ? undefined : checkCertificate(text, keyText);
}

function certificateOf(args: readonly string[]): { text: string; keyText: string | undefined } {
  const { positional, options } = parse(args, ['key']);
  const key = options.key?.at(-1);
  return {
    text: contentOf(one(positional, 'FILE')),
    keyText: key === undefined ? undefined : contentOf(key),
  };
}

function contentOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new AdministrationError(`${file} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

/** `track=none` as a limit. What stands behind the first `=` is its value, so `track=5=6` is none. */
function limitOf(text: string): ReturnType<typeof parseLimit> {
  const [name = '', ...value] = text.split('=');
  return parseLimit(name, value.join('='));
}

/** The number of `--limit NUMBER`; undefined if it is not given. */
function countOf(args: readonly string[]): number | undefined {
  const count = parse(args, ['limit']).options.limit?.at(-1);
  return count === undefined ? undefined : wholeNumber('--limit', count);
}

function placeNumber(option: string, value: string): number {
  if (value === '0') return 0;
  if (!isCount(value)) throw new AdministrationError(`${option} must be a number from 0`);
  return Number(value);
}

function wholeNumber(option: string, value: string): number {
  if (!isCount(value)) throw new AdministrationError(`${option} must be a whole number from 1`);
  return Number(value);
}

function isCount(text: string): boolean {
  return /^[1-9]\d*$/.test(text) && Number(text) <= administration.countMax;
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
