// Commands on the deployment as a whole, for operators: refused rows, the index of keys, shards, backups, and the state of Redis.

import { listPeople } from '../../accounts/people/people.js';
import { readSigningKey } from '../../accounts/signing-key.js';
import { AdministrationError } from '../../contract/errors.js';
import { administration, backups, loads, storing } from '../../contract/limits.js';
import { operatorsOnly } from '../../contract/roles.js';
import { listOf, optional, text } from '../../contract/typebox.js';
import { createCrashPoint } from '../../crash-point.js';
import { createBackup, listBackups } from '../../operations/backups.js';
import type { AdminContext } from '../../operations/context.js';
import {
  createDemoAccount,
  findDemoAccount,
  type LoadOptions,
  loadDeployment,
} from '../../operations/deployment.js';
import { recoverState, showState } from '../../operations/recover.js';
import { checkNoneBegun, checkNoneUnfinished } from '../../operations/restore/plan.js';
import { restoreBackup } from '../../operations/restore/restore-backup.js';
import { restoreDeletions } from '../../privacy/deletion/second-copy.js';
import type { Loading } from '../../registry/loading.js';
import { copyChanges, kindsOfCopies } from '../../registry/outbox.js';
import { readRegistry } from '../../registry/registry.js';
import { compareOnce } from '../../registry/witness.js';
import { readCopiedAt } from '../../registry/witness-copies.js';
import { keyIndex } from '../../tuning.js';
import { type CommandContext, does, onCommandLine, shows, wholeNumber } from '../command.js';
import { listFailed, retryFailed } from '../failed.js';
import { rebuildKeyIndex, showKeyIndex } from '../key-index.js';
import { balanceShards, listShards, moveShards } from '../shards.js';

const may = operatorsOnly;

export const deploymentCommands = {
  listFailed: shows({
    summary: 'Rows that ClickHouse refused, without values',
    may,
    http: 'GET /failed',
    cli: 'failed list [--limit NUMBER]   rows that ClickHouse refused for their data',
    given: { limit: optional(wholeNumber(1, administration.countMax, onCommandLine)) },
    run: ({ clickhouse }, { limit = administration.listedMax }) => listFailed(clickhouse, limit),
  }),
  retryFailed: does('sent failed rows again', {
    summary: 'Send the refused rows again',
    may,
    http: 'POST /failed/retry',
    cli: 'failed retry   sends them again',
    run: (context) => retryFailed(context),
  }),

  showKeyIndex: shows({
    summary: 'The index of idempotency keys',
    may,
    http: 'GET /keys-index',
    cli: 'keys-index status   the index of idempotency keys: how many, how large, since when it is needed',
    run: (context) => showKeyIndex(context),
  }),
  rebuildKeyIndex: does('rebuilt the index of keys', {
    summary: 'Make the workers add the keys of all stored rows to the index again; it shows their progress',
    may,
    http: 'POST /keys-index/rebuild',
    cli: 'keys-index rebuild   has the workers add the keys of all stored rows to it again',
    byCommandLine: async (run, _, context) => {
      await run({});
      return untilRebuilt(context);
    },
    run: (context) => rebuildKeyIndex(context),
  }),

  listShards: shows({
    summary: 'Which ClickHouse server has which shard, how large it is, and what is waiting for it',
    may,
    http: 'GET /shards',
    cli: 'shards list   which ClickHouse server has which shard, how large it is, and what waits for it',
    run: (context) => listShards(context),
  }),
  moveShards: does('moved shards', {
    may,
    cli: 'shards move SHARD… --to SERVER   moves shards to another server; again: continues; servers count from 0',
    given: {
      shards: listOf(wholeNumber(0, storing.shardsMax - 1)),
      server: wholeNumber(0, administration.countMax),
    },
    details: ({ shards, server }) => ({ shards, server }),
    run: (context, { shards, server }) => moveShards(context, shards, server),
  }),
  balanceShards: does('balanced shards', {
    may,
    cli: 'shards balance   moves shards until each server has equally many',
    run: (context) => balanceShards(context),
  }),

  createBackup: does('made a backup', {
    may,
    cli: 'backup create [NAME] [--base NAME] [--keep-days NUMBER]   of ClickHouse; with a base only what changed since it',
    given: {
      name: optional(text()),
      base: optional(text()),
      keep_days: optional(wholeNumber(1, backups.keepDaysMax)),
    },
    details: ({ name, base, keep_days: keepDays }) => ({ name, base, keepDays }),
    run: (context, { name, base, keep_days: keepDays }) => createBackup(context, { name, base, keepDays }),
  }),
  listBackups: shows({
    may,
    cli: 'backup list   backups that have not expired, newest first',
    run: (context) => listBackups(context),
  }),
  restoreBackup: does('restored a backup', {
    may,
    cli: 'backup restore NAME [--yes]   replaces the data in ClickHouse, then repeats the deletions since the backup',
    byCommandLine: (run, { name, yes }) => {
      if (yes !== undefined) return run({ name });
      throw new AdministrationError(
        `this replaces everything that ClickHouse has with the backup ${name}: add --yes if that is what you want`,
      );
    },
    given: { name: text() },
    details: ({ name }) => ({ name }),
    loadsState: true,
    run: (context, { name }) => restoreBackup(context, name, () => load(context, loads.restoreWaitMsMax)),
  }),

  showState: shows({
    may,
    cli: 'state compare   whether Redis or ClickHouse was set back to older data, and what is missing',
    run: (context) => showState(context),
  }),
  recoverState: does('continued with a ClickHouse that was set back', {
    may,
    cli: 'state recover   continues with a ClickHouse that was set back: deletes again, frees the keys of what is gone',
    run: (context) => recoverState(context),
  }),
  reloadState: does(
    { restore: 'restored the state of Redis' },
    {
      summary: 'Load the state into an emptied Redis',
      may,
      http: { 'POST /restore': 'restore' },
      cli: 'state reload   loads the state into an emptied Redis',
      alias: 'restore',
      action: () => 'restore',
      loadsState: true,
      run: async (context) => {
        // Read before the load: once Redis is loaded, a worker may at any moment record that everything is copied.
        const copiedAt = await readCopiedAt(context.clickhouse);
        const { how } = await loadUnlessRestoring(context, loads.restoreWaitMsMax);
        return how === 'restored' ? { state: how, changes_kept_until: copiedAt } : { state: how };
      },
    },
  ),
  bootstrap: does('loaded or created the state at a start', {
    may,
    cli: 'bootstrap   what a start does: load or create the state',
    loadsState: true,
    run: async (context) => {
      const { redis, clickhouse } = context;
      const { how } = await loadUnlessRestoring(context, loads.startWaitMsMax);
      await readSigningKey(redis, clickhouse);
      const demo = how === 'created' ? await createDemoAccount(redis) : undefined;
      if (demo !== undefined) await copyChanges(redis, clickhouse, { kind: kindsOfCopies.document });
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

/** Waits for the workers. They continue even if the caller stops waiting. */
async function untilRebuilt(context: CommandContext) {
  for (let lastLine = ''; ; ) {
    const index = await showKeyIndex(context);
    const left = index.shards.filter(({ rebuild }) => rebuild !== null);
    if (left.length === 0) return index;
    const line = left
      .map(({ shard, rebuild }) => {
        if (rebuild?.to == null) return `shard ${shard}: not begun by any worker`;
        return `shard ${shard}: ${rebuild.done_to === null ? 'begun' : `up to ${rebuild.done_to}`} of ${rebuild.to}`;
      })
      .join(', ');
    if (line !== lastLine) context.say(line);
    lastLine = line;
    await new Promise((resolve) => setTimeout(resolve, keyIndex.rebuildPollMs));
  }
}

function loadUnlessRestoring(context: AdminContext, waitMsMax: number) {
  return load(context, waitMsMax, {
    checkLoad: () => checkNoneUnfinished(context),
    checkCreation: () => checkNoneBegun(context),
  });
}

/**
 * Finds out whether Redis is older than what ClickHouse has seen; it then counts as emptied. While ClickHouse is away nothing is decided.
 */
async function compareStores({ redis, clickhouse, log }: AdminContext): Promise<void> {
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) return;
  await compareOnce({ redis, clickhouse, deployment: () => deployment, log }).catch((error: unknown) =>
    log.warn({ error }, 'the stores cannot be compared'),
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
