// Commands: the deployment as a whole, for operators: refused rows, the index of keys, shards, backups, and the state of Redis.

import { AdministrationError } from '../../accounts/accounts.js';
import {
  createDemoAccount,
  findDemoAccount,
  type LoadOptions,
  loadDeployment,
} from '../../accounts/deployment.js';
import type { Loading } from '../../accounts/loading.js';
import { mirrorRegistry } from '../../accounts/mirror.js';
import { readRegistry } from '../../accounts/registry.js';
import { makeSigningKey } from '../../accounts/signing-key.js';
import { compareOnce } from '../../accounts/witness.js';
import { readCopiedAt } from '../../accounts/witness-copies.js';
import { administrationAnswers as answers } from '../../contract/administration-answers.js';
import { administration, backups, loads, storing } from '../../contract/limits.js';
import { operatorsOnly } from '../../contract/roles.js';
import { Type } from '../../contract/typebox.js';
import { createCrashPoint } from '../../crash-point.js';
import { restoreDeletions } from '../../deletion/mirror.js';
import { describeError } from '../../log.js';
import { listPeople } from '../../people/people.js';
import { keyIndex } from '../../tuning.js';
import { createBackup, listBackups } from '../backups.js';
import { type CommandContext, command, onCommandLine, optional, text, wholeNumber } from '../command.js';
import type { AdminContext } from '../context.js';
import { listFailed, retryFailed } from '../failed.js';
import { rebuildKeyIndex, showKeyIndex } from '../key-index.js';
import { recoverState, showState } from '../recover.js';
import { restoreBackup } from '../restore-backup.js';
import { checkNoneCutOff, checkNoRestore } from '../restore-plan.js';
import { balanceShards, listShards, moveShards } from '../shards.js';

const may = operatorsOnly;

export const deploymentCommands = {
  listFailed: command({
    summary: 'Rows that ClickHouse refused, without values',
    may,
    http: 'GET /failed',
    cli: { line: 'failed list [--limit NUMBER]', help: 'rows that ClickHouse refused for their data' },
    given: { limit: Type.Optional(wholeNumber(1, administration.countMax, onCommandLine)) },
    answer: answers.listFailed,
    audit: 'none',
    run: ({ clickhouse }, { limit = administration.listedMax }) => listFailed(clickhouse, limit),
  }),
  retryFailed: command({
    summary: 'Send them again',
    may,
    http: 'POST /failed/retry',
    cli: { line: 'failed retry', help: 'sends them again' },
    answer: answers.retryFailed,
    audit: { words: 'sent failed rows again' },
    run: (context) => retryFailed(context),
  }),

  showKeyIndex: command({
    summary: 'The index of idempotency keys',
    may,
    http: 'GET /keys-index',
    cli: {
      line: 'keys-index status',
      help: 'the index of idempotency keys: how many, how large, since when it is needed',
    },
    answer: answers.showKeyIndex,
    audit: 'none',
    run: (context) => showKeyIndex(context),
  }),
  rebuildKeyIndex: command({
    summary: 'Have the workers add the keys of all stored rows to it again; the index says how far they are',
    may,
    http: 'POST /keys-index/rebuild',
    cli: {
      line: 'keys-index rebuild',
      help: 'has the workers add the keys of all stored rows to it again',
      by: async (give, _, context) => {
        await give({});
        return untilRebuilt(context);
      },
    },
    answer: answers.rebuildKeyIndex,
    audit: { words: 'rebuilt the index of keys' },
    run: (context) => rebuildKeyIndex(context),
  }),

  listShards: command({
    summary: 'Which ClickHouse server has which shard, how large it is, and what waits for it',
    may,
    http: 'GET /shards',
    cli: {
      line: 'shards list',
      help: 'which ClickHouse server has which shard, how large it is, and what waits for it',
    },
    answer: answers.listShards,
    audit: 'none',
    run: (context) => listShards(context),
  }),
  moveShards: command({
    may,
    cli: {
      line: 'shards move SHARD… --to SERVER',
      help: 'moves shards to another server; again: continues; servers count from 0',
    },
    given: {
      shards: Type.Array(wholeNumber(0, storing.shardsMax - 1)),
      server: wholeNumber(0, administration.countMax),
    },
    audit: { words: 'moved shards', details: ({ shards, server }) => ({ shards, server }) },
    run: (context, { shards, server }) => moveShards(context, shards, server, context.say),
  }),
  balanceShards: command({
    may,
    cli: { line: 'shards balance', help: 'moves shards until each server has equally many' },
    audit: { words: 'balanced shards' },
    run: (context) => balanceShards(context, context.say),
  }),

  createBackup: command({
    may,
    cli: {
      line: 'backup create [NAME] [--base NAME] [--keep-days NUMBER]',
      help: 'of ClickHouse; with a base only what changed since it',
    },
    given: {
      name: optional,
      base: optional,
      keep_days: Type.Optional(wholeNumber(1, backups.keepDaysMax)),
    },
    audit: {
      words: 'made a backup',
      details: ({ name, base, keep_days: keepDays }) => ({ name, base, keepDays }),
    },
    run: (context, { name, base, keep_days: keepDays }) => createBackup(context, { name, base, keepDays }),
  }),
  listBackups: command({
    may,
    cli: { line: 'backup list', help: 'backups that have not expired, newest first' },
    audit: 'none',
    run: (context) => listBackups(context),
  }),
  restoreBackup: command({
    may,
    cli: {
      line: 'backup restore NAME [--yes]',
      help: 'replaces the data in ClickHouse, then repeats the deletions since the backup',
      by: (give, { name, yes }) => {
        if (yes !== undefined) return give({ name });
        throw new AdministrationError(
          `this replaces everything that ClickHouse has by the backup ${name}: add --yes if that is what you want`,
        );
      },
    },
    given: { name: text },
    audit: { words: 'restored a backup', details: ({ name }) => ({ name }), loadsState: true },
    run: (context, { name }) => restoreBackup(context, name, () => load(context, loads.restoreWaitMsMax)),
  }),

  showState: command({
    may,
    cli: {
      line: 'state compare',
      help: 'whether Redis or ClickHouse was set back to older data, and what is missing',
    },
    audit: 'none',
    run: (context) => showState(context),
  }),
  recoverState: command({
    may,
    cli: {
      line: 'state recover',
      help: 'goes on with a ClickHouse that was set back: deletes again, frees the keys of what is gone',
    },
    audit: { words: 'went on with a ClickHouse that was set back' },
    run: (context) => recoverState(context),
  }),
  restore: command({
    summary: 'Load the state into an emptied Redis',
    may,
    http: 'POST /restore',
    cli: { line: 'restore', help: 'loads the state into an emptied Redis' },
    answer: answers.restore,
    audit: { words: 'restored the state of Redis', loadsState: true },
    run: async (context) => {
      // Before the load: once Redis is loaded, a worker may note at any moment that all is copied.
      const copiedAt = await readCopiedAt(context.clickhouse);
      const { how } = await loadUnlessRestoring(context, loads.restoreWaitMsMax);
      return how === 'restored' ? { state: how, changes_kept_until: copiedAt } : { state: how };
    },
  }),
  bootstrap: command({
    may,
    cli: { line: 'bootstrap', help: 'what a start does: load or create the state' },
    audit: { words: 'loaded or created the state at a start', loadsState: true },
    run: async (context) => {
      const { redis, clickhouse } = context;
      const { how } = await loadUnlessRestoring(context, loads.startWaitMsMax);
      await makeSigningKey(redis, clickhouse);
      const demo = how === 'created' ? await createDemoAccount(redis) : undefined;
      if (demo !== undefined) await mirrorRegistry(redis, clickhouse);
      const account = demo?.account ?? (await findDemoAccount(redis));
      return {
        created: how === 'created',
        restored: how === 'restored',
        account_id: account?.account_id ?? null,
        environments: account?.environments ?? [],
        has_operator: (await listPeople(redis)).some(
          ({ role, state }) => role === 'operator' && state === 'active',
        ),
        ...(demo === undefined ? {} : { api_key: demo.apiKey }),
      };
    },
  }),
};

/** The workers continue, whether or not the caller waits. */
async function untilRebuilt(context: CommandContext) {
  for (let said = ''; ; ) {
    const index = await showKeyIndex(context);
    const left = index.shards.filter(({ rebuild }) => rebuild !== null);
    if (left.length === 0) return index;
    const line = left
      .map(({ shard, rebuild }) => {
        if (rebuild?.to == null) return `shard ${shard}: no worker has begun`;
        return `shard ${shard}: ${rebuild.done_to === null ? 'begun' : `up to ${rebuild.done_to}`} of ${rebuild.to}`;
      })
      .join(', ');
    if (line !== said) context.say(line);
    said = line;
    await new Promise((resolve) => setTimeout(resolve, keyIndex.rebuildPollMs));
  }
}

function loadUnlessRestoring(context: AdminContext, waitMsMax: number) {
  return load(context, waitMsMax, {
    checkLoad: () => checkNoneCutOff(context),
    checkCreation: () => checkNoRestore(context),
  });
}

/** A Redis that is older than what ClickHouse has seen counts as emptied. A ClickHouse that is away decides nothing. */
async function compareStores({ redis, clickhouse, log }: AdminContext): Promise<void> {
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) return;
  await compareOnce({ redis, clickhouse, deployment: () => deployment, log }).catch((error: unknown) =>
    log.warn({ error: describeError(error) }, 'the stores cannot be compared'),
  );
}

async function load(
  context: AdminContext,
  waitMsMax: number,
  checks: Pick<LoadOptions, 'checkLoad' | 'checkCreation'> = {},
) {
  const { redis, clickhouse, config } = context;
  const { shards, areShardsGiven, claimBytesMax } = config;
  const restoreMore = (loading: Loading) => restoreDeletions(clickhouse, loading);
  const crash = createCrashPoint(config.crashAt);
  await compareStores(context);
  return loadDeployment({
    redis,
    clickhouse,
    shards,
    areShardsGiven,
    claimBytesMax,
    restoreMore,
    ...checks,
    waitMsMax,
    crash,
  });
}
