// The administration's commands. Each takes an object and settles with a value to print as JSON. The command line
// (command-line.ts) and the administration over HTTP (http/endpoints/admin-api.ts) map to them; what may take hours is on the
// command line only.

import {
  AdministrationError,
  addEnvironment,
  createAccount,
  type EnvironmentSettings,
  listAccounts,
  setEnvironment,
  showEnvironment,
} from '../accounts/accounts.js';
import {
  createApiKey,
  listApiKeys,
  type Rotation,
  revokeApiKey,
  rotateApiKey,
  showApiKey,
} from '../accounts/api-keys.js';
import { removeCallback, setCallback, showCallback } from '../accounts/callbacks.js';
import {
  createDemoAccount,
  findDemoAccount,
  type LoadOptions,
  loadDeployment,
} from '../accounts/deployment.js';
import type { Loading } from '../accounts/loading.js';
import { assertCopyable, isCopiedInTime, mirrorRegistry, NotCopied } from '../accounts/mirror.js';
import { readRegistry } from '../accounts/registry.js';
import { clickhouseOf } from '../accounts/shard-servers.js';
import { makeSigningKey, publicPartOf, readSigningKey } from '../accounts/signing-key.js';
import { compareOnce } from '../accounts/witness.js';
import { readCopiedAt } from '../accounts/witness-copies.js';
import { createWriteKey, listWriteKeys, revokeWriteKey } from '../accounts/write-keys.js';
import type { Actor } from '../audit/audit.js';
import { type AuditPlace, mirrorAudit, readAuditLog } from '../audit/mirror.js';
import { administration, loads } from '../contract/limits.js';
import { createCrashPoint } from '../crash-point.js';
import { readEnvironmentCounts } from '../data-quality/environment-counts.js';
import { listEventNames, listEventProperties } from '../data-quality/event-names.js';
import { listRejected } from '../data-quality/rejected-records.js';
import { callOptionsOf, isForbidden, isTaken } from '../deletion/callback-call.js';
import { callForTest } from '../deletion/callbacks.js';
import { certify, readPublicKey, type Verification, verifyCertificate } from '../deletion/certificate.js';
import { listEvidence } from '../deletion/evidence.js';
import { isListCursor, listOfAccounts } from '../deletion/listed.js';
import { restoreDeletions } from '../deletion/mirror.js';
import { type DeletionRequest, endDeletion, readDeletion } from '../deletion/request.js';
import { describeError } from '../log.js';
import { type Invitation, invitePerson, listPeople, removePerson } from '../people/people.js';
import { allowCommands, operator, type Principal } from './access.js';
import { auditCommands } from './audited.js';
import { type CreateOptions, createBackup, listBackups } from './backups.js';
import type { AdminContext } from './context.js';
import { listExportsOf, requestExport } from './exports.js';
import { listFailed, retryFailed } from './failed.js';
import { rebuildKeyIndex, showKeyIndex } from './key-index.js';
import { beginLive, readLive } from './live.js';
import { readDeploymentParts, readOverview, readRejectionsOf, readTrafficOf } from './overview.js';
import { recoverState, showState } from './recover.js';
import { restoreBackup } from './restore-backup.js';
import { checkNoneCutOff, checkNoRestore } from './restore-plan.js';
import { balanceShards, listShards, moveShards } from './shards.js';
import {
  changeSuppression,
  checkEventName,
  environmentOf,
  inTime,
  showEventCounts,
  showSimilarUsers,
  showSuppressed,
  showUser,
  showUserEvents,
} from './users.js';

export type AdminCommands = ReturnType<typeof createAdminCommands>;

type OfAccount = { readonly accountId: string };
type OfEnvironment = { readonly appId: string };
type Named = { readonly name?: string | undefined };
/** A certificate, and the public key to check it with; by default the deployment's. */
type CertificateCheck = { readonly text: string; readonly keyText?: string | undefined };
type OfDeletion = { readonly requestId: string };
type Lately = { readonly days: number };
/** `hour` or `week`, of one environment or all. */
type Chart = { readonly appId?: string | undefined; readonly span?: string | undefined };
/** A user of an environment, by one of identity, user_id and anonymous_id. */
type OfUser = OfEnvironment & { readonly user: unknown };
type EventsPage = { readonly event?: string | undefined; readonly cursor?: string | undefined };
/** Deletions in a state or of a status, or of one reference; from where the page before ended. */
type DeletionsPage = {
  readonly state?: string | undefined;
  readonly reference?: string | undefined;
  readonly cursor?: string | undefined;
};
type OfPerson = { readonly personId: string };

/** Narrows a list to an account. */
type Scope = { readonly accountId?: string | undefined };

type List = { readonly countMax?: number | undefined };
type Before = { readonly before?: AuditPlace | undefined };

/**
 * The commands as an actor gives them, under the audit log, and as far as the principal may. They reject with
 * AdministrationError, whose message is for the administrator, with Forbidden, with StateNotLoaded, or with AuditLogFull.
 */
export function createAdminCommands(context: AdminContext, actor: Actor, principal: Principal = operator) {
  const commands = auditCommands(commandsOf(context, principal, actor), context, actor);
  return principal.role === 'operator' ? commands : allowCommands(commands, context, principal);
}

/** Gets reports of the progress. */
type Told = { readonly say?: (line: string) => void };
type ShardsMove = Told & { readonly shards: readonly number[]; readonly server: number };

function commandsOf(context: AdminContext, principal: Principal, actor: Actor) {
  const { redis, clickhouse, config } = context;
  return {
    listAccounts: async ({ accountId }: Scope) => {
      const accounts = await listAccounts(redis, accountId);
      if (!config.demo) return accounts;
      const demo = await findDemoAccount(redis);
      return accounts.map((each) => (each.account_id === demo?.account_id ? { ...each, demo: true } : each));
    },
    createAccount: (account: { readonly name: string; readonly environments: readonly string[] }) =>
      copied(context, createAccount(redis, account.name, account.environments)),

    showCallback: ({ accountId }: OfAccount) => showCallback(redis, accountId),
    setCallback: ({ accountId, url }: OfAccount & { readonly url: string }) =>
      copied(
        context,
        setCallback(redis, accountId, url, (wanted) =>
          isForbidden(wanted, callOptionsOf(config.callbackAllow)),
        ),
      ),
    removeCallback: ({ accountId }: OfAccount) => copiedOrFails(context, removeCallback(redis, accountId)),
    testCallback: async ({ accountId }: OfAccount) => {
      const result = await callForTest(redis, accountId, callOptionsOf(config.callbackAllow));
      if (result === undefined) throw new AdministrationError('the account has no callback');
      if (result === 'busy')
        throw new AdministrationError('another test of this callback still runs: try again in some seconds');
      return { account_id: accountId, delivered: isTaken(result), ...result };
    },

    addEnvironment: ({ accountId, name }: { readonly accountId: string; readonly name: string }) =>
      copied(context, addEnvironment(redis, accountId, name)),
    setEnvironment: ({ appId, settings }: OfEnvironment & { readonly settings: EnvironmentSettings }) =>
      copiedOrFails(context, setEnvironment(redis, appId, settings)),
    showEnvironment: ({ appId }: OfEnvironment) => showEnvironment(redis, appId),
    showStats: async ({ appId }: OfEnvironment) => {
      await environmentOf(context, appId);
      return { app_id: appId, ...(await readEnvironmentCounts(redis, appId)) };
    },
    listRejected: async ({ appId }: OfEnvironment) => {
      const { environments } = await readRegistry(redis);
      if (!environments.has(appId)) throw new AdministrationError(`there is no environment ${appId}`);
      return listRejected(redis, appId);
    },
    showRejections: ({ appId, span }: OfEnvironment & Pick<Chart, 'span'>) =>
      readRejectionsOf(context, appId, span),

    createKey: ({ appId, name }: OfEnvironment & Named) => copied(context, createApiKey(redis, appId, name)),
    listKeys: ({ appId }: OfEnvironment) => listApiKeys(redis, appId),
    rotateKey: async ({ appId, ...rotation }: OfEnvironment & Rotation) => {
      // Before the former key ends: the new one is shown only once, and the former one may be the only one that anybody has.
      const copyMsMax = (context.copyMsMax ?? administration.copyMsMax) / 2;
      await assertCopyable(clickhouse, copyMsMax);
      return copied({ ...context, copyMsMax }, rotateApiKey(redis, appId, rotation));
    },
    revokeKey: ({ appId, id }: OfEnvironment & { readonly id?: string }) =>
      copiedOrFails(context, revokeApiKey(redis, appId, id)),
    showKey: ({ appId }: OfEnvironment) => showApiKey(redis, appId),

    createWriteKey: ({ appId, name = '' }: OfEnvironment & Named) =>
      copied(context, createWriteKey(redis, appId, name)),
    listWriteKeys: ({ appId }: OfEnvironment) => listWriteKeys(redis, appId),
    revokeWriteKey: ({ appId, id }: OfEnvironment & { readonly id: string }) =>
      copiedOrFails(context, revokeWriteKey(redis, appId, id)),
    listAudit: async ({ countMax = administration.listedMax, accountId, before }: List & Scope & Before) => {
      // So that an action is in the list as soon as it is done.
      await mirrorAudit(redis, clickhouse);
      if (accountId === undefined) return readAuditLog(clickhouse, countMax, undefined, before);
      const { environments } = await readRegistry(redis);
      const own = [...environments.values()].filter(({ account_id }) => account_id === accountId);
      const scope = {
        accountId,
        appIds: own.map(({ app_id }) => app_id),
        // Privacy officers see what they did themselves.
        ...(principal.role === 'privacy' ? { person: actor.name } : {}),
      };
      return readAuditLog(clickhouse, countMax, scope, before);
    },

    invitePerson: async (invitation: Invitation) => {
      const by = principal.role === 'operator' ? 'operator' : 'administrator';
      const { secret, ...person } = await copied(context, invitePerson(redis, invitation, by));
      // Behind the hash, so that it is in no log on the way.
      return { ...person, url: `${config.adminBaseUrl}/invitation#${secret}` };
    },
    listPeople: ({ accountId }: Scope) => listPeople(redis, accountId),
    removePerson: ({ personId }: OfPerson) => copiedOrFails(context, removePerson(redis, personId)),

    listFailed: ({ countMax = administration.listedMax }: List) => listFailed(clickhouse, countMax),
    retryFailed: () => retryFailed(context),

    showKeyIndex: () => showKeyIndex(context),
    rebuildKeyIndex: () => rebuildKeyIndex(context),

    listDeletions: async ({ accountId, state, reference, cursor }: Scope & DeletionsPage) => {
      if (cursor !== undefined && !isListCursor(cursor))
        throw new AdministrationError('cursor must come from an earlier page');
      const ids = accountId === undefined ? [...(await readRegistry(redis)).accounts.keys()] : [accountId];
      const page = await listOfAccounts(redis, ids, { state, reference, after: cursor });
      return {
        deletions: page.requests,
        ...(page.next === undefined ? {} : { cursor: page.next }),
      };
    },
    showDeletion: ({ requestId }: OfDeletion) => findDeletion(context, requestId),
    endDeletion: async ({ requestId }: OfDeletion) => {
      const request = await findDeletion(context, requestId);
      const ended = request.state === 'targets_lost' ? await endDeletion(redis, request) : undefined;
      if (ended === undefined) {
        throw new AdministrationError(
          `only a request whose targets are lost can be ended; this one is ${request.state}`,
        );
      }
      return ended;
    },

    listDeletionUsers: async ({
      requestId,
      cursor,
    }: OfDeletion & { readonly cursor?: string | undefined }) => {
      const { status } = await findDeletion(context, requestId);
      if (status !== 'complete') throw new AdministrationError('the deletion is not complete yet');
      const from = cursor ?? '0';
      if (!/^\d{1,9}$/.test(from)) throw new AdministrationError('cursor must come from an earlier answer');
      const { users, next } = await listEvidence(clickhouse, requestId, Number(from));
      return { users, ...(next === undefined ? {} : { cursor: String(next) }) };
    },
    showCertificate: async ({ requestId }: OfDeletion) => {
      const request = await findDeletion(context, requestId);
      const signed = certify(request, await readSigningKey(redis, clickhouse));
      if (signed === undefined) throw new AdministrationError('the deletion is not complete yet');
      return signed;
    },

    submitExport: ({ accountId, users }: OfAccount & { readonly users: unknown }) =>
      requestExport(context, accountId, users),
    listExports: ({ accountId }: OfAccount) => listExportsOf(context, accountId),

    showOverview: ({ accountId }: OfAccount) => readOverview(context, accountId),
    showTraffic: ({ accountId, ...chart }: OfAccount & Chart) => readTrafficOf(context, accountId, chart),
    showDeployment: () => readDeploymentParts(context),

    listEventNames: async ({ appId, days }: OfEnvironment & Lately) => {
      await environmentOf(context, appId);
      return inTime(listEventNames(clickhouseOf(clickhouse, appId), appId, days), 'choose a shorter time');
    },
    listEventProperties: async ({
      appId,
      event,
      days,
    }: OfEnvironment & Lately & { readonly event: string }) => {
      checkEventName(event);
      await environmentOf(context, appId);
      return inTime(
        listEventProperties(clickhouseOf(clickhouse, appId), appId, event, days),
        'choose a shorter time',
      );
    },
    watchLive: ({ appId }: OfEnvironment) => beginLive(context, appId),
    showLive: ({ appId, place }: OfEnvironment & { readonly place: string }) =>
      readLive(context, appId, place),

    lookUpUser: ({ appId, user, withEvents }: OfUser & { readonly withEvents: boolean }) =>
      showUser(context, appId, user, withEvents),
    countUserEvents: ({ appId, user }: OfUser) => showEventCounts(context, appId, user),
    findSimilarUsers: ({ appId, user }: OfUser) => showSimilarUsers(context, appId, user),
    readUserEvents: ({ appId, user, ...page }: OfUser & EventsPage) =>
      showUserEvents(context, appId, user, page),
    suppressUsers: ({ accountId, users }: OfAccount & { readonly users: unknown }) =>
      changeSuppression(context, accountId, users, true),
    showSuppressed: ({ accountId }: OfAccount) => showSuppressed(context, accountId),
    freeUsers: ({ accountId, users }: OfAccount & { readonly users: unknown }) =>
      changeSuppression(context, accountId, users, false),

    showVerified: async ({ text, keyText }: CertificateCheck) => {
      const key =
        keyText === undefined ? publicPartOf(await readSigningKey(redis, clickhouse)).public_key : keyText;
      return checkCertificate(text, key);
    },

    listShards: () => listShards(context),
    moveShards: ({ shards, server, say = () => undefined }: ShardsMove) =>
      moveShards(context, shards, server, say),
    balanceShards: ({ say = () => undefined }: Told = {}) => balanceShards(context, say),

    createBackup: (options: CreateOptions) => createBackup(context, options),
    listBackups: () => listBackups(context),
    restoreBackup: ({ name }: { readonly name: string }) =>
      restoreBackup(context, name, () => load(context, loads.restoreWaitMsMax)),

    showState: () => showState(context),
    recoverState: () => recoverState(context),

    restore: async () => {
      // Before the load: once Redis is loaded, a worker may note at any moment that all is copied.
      const copiedAt = await readCopiedAt(clickhouse);
      const { how } = await loadUnlessRestoring(context, loads.restoreWaitMsMax);
      return how === 'restored' ? { state: how, changes_kept_until: copiedAt } : { state: how };
    },
    bootstrap: async () => {
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
  };
}

/** Checks a certificate by a public key. Throws AdministrationError when the key is none. */
export function checkCertificate(text: string, keyText: string): Verification {
  const key = readPublicKey(keyText);
  if (key === undefined) throw new AdministrationError('the key is no Ed25519 public key');
  return verifyCertificate(text, key);
}

/**
 * After a change of the registry: writes its second copy at once. The result says so if ClickHouse does not take it in time; a worker
 * then copies it when ClickHouse is back, and a loss of Redis until then undoes the change.
 */
async function copied<Result extends object>(
  { redis, clickhouse, log, copyMsMax = administration.copyMsMax }: AdminContext,
  change: Promise<Result>,
): Promise<Result | (Result & { readonly copied: false })> {
  const result = await change;
  if (await isCopiedInTime(redis, clickhouse, copyMsMax)) return result;
  log.warn('clickhouse is away: a worker will copy the change when it is back');
  return { ...result, copied: false };
}

/**
 * The same for a change that revokes or protects something, which nobody may take for safe while it can be undone: rejects with
 * NotCopied, although the change holds. A secret that is shown only once is never lost with the answer.
 */
async function copiedOrFails<Result extends object>(
  context: AdminContext,
  change: Promise<Result>,
): Promise<Result> {
  const result = await copied(context, change);
  if ('copied' in result && !('import_token' in result)) throw new NotCopied(true);
  return result;
}

async function findDeletion({ redis }: AdminContext, requestId: string): Promise<DeletionRequest> {
  const request = await readDeletion(redis, requestId);
  if (request === undefined) throw new AdministrationError('there is no such deletion request');
  return request;
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
