// The routes of the two servers: the public one, and the administrators'.

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createPasswords } from './accounts/people/passwords.js';
import { createProvider } from './accounts/people/provider.js';
import { createAdministration } from './admin/administration.js';
import type { ApiContext } from './api-context.js';
import { readArrived } from './clickhouse/arrived.js';
import { serversOf } from './clickhouse/servers.js';
import type { Config } from './config.js';
import { loaded } from './contract/errors.js';
import { adminRoutes } from './http/endpoints/admin.js';
import { adminApiRoutes } from './http/endpoints/admin-api.js';
import type { AdminCallers } from './http/endpoints/admin-caller.js';
import { largeBodiesOfServers } from './http/endpoints/byte-allowance.js';
import { certificateCheckRoute } from './http/endpoints/certificate-check.js';
import { collectRoutes } from './http/endpoints/collect.js';
import type { SignInOptions } from './http/endpoints/console-session.js';
import { deletionRoutes } from './http/endpoints/deletion.js';
import { accountDeletionRoute } from './http/endpoints/deletion-submission.js';
import { healthPart, healthRoutes, type Readiness } from './http/endpoints/health.js';
import { ingestRoutes } from './http/endpoints/ingest.js';
import { receiptRoutes, receiptsPart } from './http/endpoints/receipts.js';
import { segmentRoutes } from './http/endpoints/segment.js';
import { signInRoutes } from './http/endpoints/sign-in-routes.js';
import { signOnDocs, signOnRoutes } from './http/endpoints/sign-on.js';
import type { UserRequestOptions } from './http/endpoints/token-caller.js';
import { accountExportRoute, exportPart, exportRoutes } from './http/endpoints/user-export.js';
import { suppressionPart, suppressionRoutes } from './http/endpoints/user-suppression.js';
import { pairingRoutes, visualizerPart } from './http/endpoints/visualizer.js';
import { createKeyCheck } from './http/endpoints/write-access.js';
import { administrationPart } from './http/openapi/administration.js';
import { collectPart } from './http/openapi/collect.js';
import { deletionPart } from './http/openapi/deletion.js';
import { openApiRoute } from './http/openapi/document.js';
import { ingestPart } from './http/openapi/ingest.js';
import { segmentPart } from './http/openapi/segment.js';
import { demoRoutes } from './http/pages/demo.js';
import { docsRoutes } from './http/pages/docs.js';
import { consoleRoutes } from './http/pages/pages.js';
import { sdkRoutes } from './http/pages/sdk.js';
import type { Route } from './http/protocol/server.js';
import { findReceipts, type ReceiptOptions } from './insights/receipts.js';
import { createBatchPublisher } from './insights/visualizer/show.js';
import { findDemoAccount } from './operations/deployment.js';
import { clickhouseOf } from './registry/shard-servers.js';

const publicParts = [
  ingestPart,
  receiptsPart,
  collectPart,
  segmentPart,
  deletionPart,
  suppressionPart,
  exportPart,
  visualizerPart,
  healthPart,
];

/** Routes for producers, apps and compliance callers. `documents` are those that the administrators' server has too. */
export function publicRoutes(config: Config, context: ApiContext, readiness: () => Readiness) {
  const { environments, counts, rejected, redis, channel, log } = context;
  const ingestion = {
    environments,
    ingestion: context.ingestion.get,
    counts,
    rejected,
    largeBodies: largeBodiesOfServers(config.addressBytesMax, environments),
  };
  const ofUsers = userRequests(config, context);
  const routes: Route[] = [
    ...ingestRoutes(ingestion),
    ...receiptRoutes({
      ...ingestion,
      hasWriteKey: createKeyCheck(environments),
      find: (environment, keys) => findReceipts(storesOf(context, environment.appId), environment, keys),
      log,
    }),
    ...collectRoutes({
      ...ingestion,
      paths: config.collectPaths,
      addressBytesMax: config.collectAddressBytesMax,
      onCollected: createBatchPublisher({ redis, channel, log }),
    }),
    ...segmentRoutes({ ...ingestion, publicBaseUrl: config.publicBaseUrl }),
    ...sdkRoutes({ folder: fileURLToPath(new URL('..', import.meta.url)), paths: config.sdkPaths, log }),
    ...deletionRoutes(ofUsers),
    ...suppressionRoutes(ofUsers),
    ...exportRoutes(ofUsers),
    ...pairingRoutes({ redis, environments, channel, log }),
    ...healthRoutes(readiness),
  ];
  const documents = [openApiRoute(config.publicBaseUrl, publicParts, routes)];
  return { all: [...routes, ...documents], documents };
}

/** Routes for administrators and people who sign in, and their pages. */
export function administratorsRoutes(
  config: Config,
  context: ApiContext,
  callers: AdminCallers,
  readMetrics: () => Promise<string>,
): Route[] {
  const { redis, clickhouse, environments, audit, queryPlaces, log } = context;
  const signIn: SignInOptions = {
    callers,
    redis,
    passwords: createPasswords(),
    audit,
    secret: () => environments.deployment()?.secret,
    isSecure: config.adminBaseUrl.startsWith('https:'),
    hasProvider: config.provider !== undefined,
    log,
  };
  const ofUsers = userRequests(config, context);
  const administration: Route[] = [
    ...adminApiRoutes({
      callers,
      administrationFor: (actor, principal) =>
        createAdministration({ redis, clickhouse, config, log }, actor, principal, queryPlaces),
      log,
    }),
    accountDeletionRoute(ofUsers, callers),
    accountExportRoute(ofUsers, callers),
    certificateCheckRoute(context),
    ...signInRoutes(signIn),
    ...(config.provider === undefined
      ? []
      : signOnRoutes({
          ...signIn,
          provider: createProvider(config.provider),
          adminBaseUrl: config.adminBaseUrl,
        })),
  ];
  const document = openApiRoute(
    config.adminBaseUrl,
    [administrationPart],
    [...administration, ...signOnDocs],
    '/admin/v1/openapi.json',
  );
  const built = fileURLToPath(new URL('./console/', import.meta.url));
  return [
    ...adminRoutes(readMetrics, log),
    document,
    ...administration,
    ...consoleRoutes(built, log),
    ...docsRoutes(join(built, 'docs')),
    ...(config.demo ? demo(config, context, built) : []),
  ];
}

function demo(config: Config, { redis, clickhouse, environments, log }: ApiContext, built: string): Route[] {
  return demoRoutes({
    publicBaseUrl: config.publicBaseUrl,
    sdkPath: config.sdkPaths[0],
    collectPath: config.collectPaths[0],
    host: config.adminHost,
    adminPort: config.adminPort,
    account: () => findDemoAccount(redis),
    accountOf: (appId) => environments.get(appId)?.accountId,
    readArrived: (query) =>
      readArrived(clickhouseOf(clickhouse, query.appId), query, serversOf(clickhouse).table() !== undefined),
    built,
    log,
  });
}

function userRequests({ publicBaseUrl }: Config, context: ApiContext): UserRequestOptions {
  const { environments, clickhouse, deletionRedis: redis, queryPlaces: queries, log } = context;
  const { previews, downloads, watchAccess, crash } = context;
  return {
    deployment: () => {
      const { epoch, shards, secret } = loaded(environments.deployment());
      return { redis, clickhouse, epoch, shards, secret, crash };
    },
    audit: { redis, clickhouse, log },
    ...{ redis, clickhouse, queries, previews, downloads, watchAccess, publicBaseUrl, crash, log },
  };
}

/** Where an environment's records are. */
function storesOf({ environments, redis, clickhouse }: ApiContext, appId: string): ReceiptOptions {
  const { epoch } = loaded(environments.deployment());
  return { redis, clickhouse: clickhouseOf(clickhouse, appId), epoch };
}
