// A Sluice for test suites: the endpoints for records and deletions, with all checks of the service, but with only memory behind them.
// Tests can ask it what was sent, and what was refused and why. Every app_id is an environment. There are no rate limits, write keys or
// suppressed users.

import type { Paths } from '../../config.js';
import { type LimitName, rateLimits } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import { everyBody } from '../../http/endpoints/byte-allowance.js';
import { collectRoutes } from '../../http/endpoints/collect.js';
import { healthRoutes } from '../../http/endpoints/health.js';
import { ingestRoutes } from '../../http/endpoints/ingest.js';
import { receiptRoutes } from '../../http/endpoints/receipts.js';
import { segmentRoutes } from '../../http/endpoints/segment.js';
import { sdkRoutes } from '../../http/pages/sdk.js';
import { openToPages } from '../../http/protocol/cors.js';
import type { Exchange } from '../../http/protocol/exchange.js';
import { readParameters } from '../../http/protocol/query.js';
import { listen, notFound, type Route, type Server } from '../../http/protocol/server.js';
import { eventIdOfKey } from '../../ingest/event-id.js';
import { createLimitKeys } from '../../ingest/limit-key.js';
import type { Log } from '../../log.js';
import type { Environments, LiveEnvironment } from '../../registry/environments.js';
import { deletionRoutes } from './deletions.js';
import { createMemory, type List, type Refused } from './memory.js';

export type MicroOptions = {
  readonly host: string;
  readonly port: number;
  readonly publicBaseUrl: string;
  readonly sdkPaths: Paths;
  readonly collectPaths: Paths;
  /** The folder with `sdk.js`. */
  readonly folder: string;
  readonly log: Log;
};

export const microPaths = {
  events: '/micro/events',
  rejected: '/micro/rejected',
  reset: '/micro/reset',
} as const;

/** Settles when it is listening. Rejects with PortTaken. */
export async function startMicro(options: MicroOptions): Promise<Server> {
  const memory = createMemory();
  let lenient = false;
  /** Whether the request that is being refused was already noted, with its document. */
  let isNoted = false;

  const note = (refused: Refused, bytes: number) =>
    memory.rejected.add(refused, bytes + refused.message.length);
  const noted = (endpoint: string, appId: string, reason: object, value: unknown, index?: number) => {
    isNoted = true;
    queueMicrotask(() => {
      isNoted = false;
    });
    const { code, message, field } = reason as Rejection;
    const where = { endpoint, app_id: appId, ...(index !== undefined && { index }) };
    const entry = { ...where, code, message, ...(field !== undefined && { field }), value };
    note(entry, JSON.stringify(value)?.length ?? 0);
  };

  const ingestion = {
    environments: environmentsOf(() => lenient),
    ingestion: () => ({
      limitKeys: createLimitKeys('micro'),
      suppressions: nobody,
      committerOf: () => memory.committer,
    }),
    counts: { addMendings: () => undefined, add: () => undefined, addRejected: () => undefined },
    rejected: {
      noteRequest: (source, reason, value) => noted(source.endpoint, source.appId, reason, value),
      noteElements: (source, reasons, elements) => {
        for (const reason of reasons)
          noted(source.endpoint, source.appId, reason, elements[reason.index], reason.index);
      },
    },
    largeBodies: everyBody(Number.MAX_SAFE_INTEGER),
  } satisfies Parameters<typeof ingestRoutes>[0];
  const { sdkPaths, collectPaths, publicBaseUrl, folder, log } = options;
  const collected = { ...ingestion, paths: collectPaths, addressBytesMax: Number.MAX_SAFE_INTEGER };

  const routes: Route[] = [
    ...ingestRoutes(ingestion),
    ...collectRoutes(collected),
    ...segmentRoutes({ ...ingestion, publicBaseUrl }),
    ...receiptRoutes({
      ...ingestion,
      hasWriteKey: () => true,
      find: async ({ appId }, keys) =>
        keys.map((key) => ({
          idempotency_key: key,
          ...memory.receiptOf(eventIdOfKey(appId, key, 'shared')),
        })),
      log,
    }),
    ...deletionRoutes({ publicBaseUrl, events: memory.events, log }),
    ...sdkRoutes({ folder, paths: sdkPaths, log }),
    ...healthRoutes(() => ({ ready: true, missing: [] })),
    { method: 'any', path: '/*', handle: notFound } as const,
  ].map(
    (route): Route => ({
      ...route,
      handle: (exchange, req) => {
        noteRefusals(exchange, req.getUrl());
        return route.handle(exchange, req);
      },
    }),
  );

  /** Notes every refusal, including those of bodies that could not be read and of paths that do not exist. */
  function noteRefusals(exchange: Exchange, endpoint: string): void {
    const refuse = exchange.refuse.bind(exchange);
    exchange.refuse = (reason, ...more) => {
      if (!isNoted && !exchange.ended) note({ endpoint, ...reason }, 0);
      refuse(reason, ...more);
    };
  }

  const asked: Route[] = [
    { method: 'get', path: microPaths.events, handle: (exchange) => show(exchange, 'events', memory.events) },
    {
      method: 'get',
      path: microPaths.rejected,
      handle: (exchange) => show(exchange, 'rejected', memory.rejected),
    },
    { method: 'post', path: microPaths.reset, handle: reset },
  ];

  /** Answers with the kept entries, from the oldest. Each query parameter is a field and the value that it must have. */
  function show(exchange: Exchange, name: string, list: List): void {
    const wanted = readParameters(exchange.dropBody().query);
    if ('code' in wanted) return exchange.refuse(wanted);
    const entries = list
      .all()
      .filter((entry) => [...wanted].every(([field, value]) => String(entry[field] ?? '') === value));
    exchange.reply(200, JSON.stringify({ [name]: entries, dropped: list.dropped() }));
  }

  function reset(exchange: Exchange): void {
    const wanted = readParameters(exchange.dropBody().query);
    const validation = 'code' in wanted ? undefined : (wanted.get('validation') ?? 'strict');
    if (validation !== 'strict' && validation !== 'lenient')
      return exchange.refuse(rejection('invalid_parameter', 'validation must be strict or lenient.'));
    lenient = validation === 'lenient';
    memory.reset();
    exchange.ok();
  }

  return listen(
    options.host,
    options.port,
    'PORT',
    false,
    [...routes, ...asked.map((route) => ({ ...route, headers: openToPages }))],
    log,
  );
}

/** Every app_id is an environment, the only one of its account. */
function environmentsOf(lenient: () => boolean): Environments {
  const get = (appId: string): LiveEnvironment | undefined =>
    !/^\d{1,20}$/.test(appId)
      ? undefined
      : {
          registryVersion: 0,
          appId,
          accountId: appId,
          lenient: lenient(),
          needsWriteKey: false,
          hasWriteKey: true,
          origins: undefined,
          shard: 0,
          allowedIdentities: new Set(),
          limits: noLimits,
        };
  return {
    get,
    find: async (appId) => get(appId),
    ofWriteKey: () => undefined,
    ofProgramKey: () => undefined,
    ofImport: () => undefined,
    deployment: () => undefined,
    isLoaded: () => true,
    isCurrent: () => true,
    onChange: () => () => undefined,
    close: () => undefined,
  };
}

const noLimits = Object.fromEntries(Object.keys(rateLimits).map((name) => [name, undefined])) as Record<
  LimitName,
  undefined
>;
const nobody = {
  version: () => 0,
  of: () => undefined,
  reach: async () => undefined,
  close: () => undefined,
};
