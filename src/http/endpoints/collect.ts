// POST /api/collect, the endpoint of the client library: body → admission → messages → one commit → one answer per message.
// Open to the pages of any site, unless the environment lists origins; only the body of a request counts.

import { isAllowedOrigin } from '../../accounts/origins.js';
import type { Paths } from '../../config.js';
import { bodies, counts, lengths } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import type { CommitResult } from '../../ingest/attempts.js';
import {
  answerMessages,
  type OnCollected,
  type PreparedMessages,
  prepareMessages,
} from '../../ingest/collect.js';
import type { LiveEnvironment } from '../../registry/environments.js';
import { collectDoc, collectPreflightDoc } from '../openapi/collect.js';
import { operation } from '../openapi/document.js';
import { readJsonBody, typesOfBrowsers } from '../protocol/body.js';
import { openRoutes } from '../protocol/cors.js';
import type { Exchange } from '../protocol/exchange.js';
import type { Route } from '../protocol/server.js';
import { withResult } from '../protocol/slices.js';
import { type Admitted, admissionGuard, createAdmission, type IngestOptions } from './admission.js';
import { everyBody, withinAllowance } from './byte-allowance.js';

export type CollectOptions = IngestOptions & {
  readonly paths: Paths;
  /** Shows messages in the Event Visualizer; without it no pairing is live. */
  readonly onCollected?: OnCollected;
  /** How many bytes an address may send to this process in a minute. */
  readonly addressBytesMax: number;
};

const endpoint = 'collect';

export function collectRoutes(options: CollectOptions): Route[] {
  const admission = createAdmission(endpoint, options, {
    list: { field: 'messages', recordsMax: counts.collectMessagesMax },
    proceed,
  });
  const take = withinAllowance(endpoint, everyBody(options.addressBytesMax), admission.receive);

  function handle(exchange: Exchange): void {
    readJsonBody(exchange, bodies.collectBytesMax, take, typesOfBrowsers);
  }

  function proceed(exchange: Exchange, admitted: Admitted): void {
    const { document, environment, ingestion, receivedMs } = admitted;
    if (!isAllowedOrigin(environment.origins, exchange.framing.origin))
      return admission.refuseAndNote(exchange, notFromThisOrigin, admitted);
    const { limitKeys, suppressions } = ingestion;
    const preparing = prepareMessages(document, { environment, limitKeys, suppressions, receivedMs });
    withResult(exchange, document.isLarge, preparing, (prepared) => conclude(exchange, admitted, prepared));
  }

  function conclude(exchange: Exchange, admitted: Admitted, prepared: PreparedMessages | Rejection): void {
    const { document, environment, ingestion } = admitted;
    if ('code' in prepared) return admission.refuseAndNote(exchange, prepared, admitted);
    admission.noteIgnored(exchange, admitted, prepared.ignored);
    if (prepared.errors.length > 0) admission.noteElements(admitted, prepared.errors, prepared.messages);
    const request = { pairing: pairingOf(document.value), prepared, environment };
    if (prepared.errors.length === prepared.messages.length) return answer(exchange, request, []);
    const settle = (results: readonly CommitResult[]) => exchange.run(answer, exchange, request, results);
    ingestion.committerOf(environment.shard).submit(prepared.submission, settle);
  }

  function answer(exchange: Exchange, request: Request, results: readonly CommitResult[]): void {
    const { prepared, environment } = request;
    // The groups are in one commit, so if one group has no result, none has.
    for (const result of results)
      if (result.kind !== 'committed' && result.kind !== 'limited')
        return admission.refuseUnstored(exchange, result);
    const { answers, limited, ...outcomes } = answerMessages(prepared, results);
    const { appId } = environment;
    const { errors, mendings } = prepared;
    admission.countRecords(appId, { ...outcomes, errors, mendings });
    for (const [limit, count] of limited) admission.countLimited(appId, limit, count, count);

    const reply = (isLive: boolean) => {
      const body = isLive ? { messages: answers } : { messages: answers, pairing: 'ended' };
      exchange.reply(200, JSON.stringify(body));
    };
    if (request.pairing === undefined) return reply(true);
    const { messages } = prepared;
    exchange.attend(isPairingLive(request.pairing, { appId, messages, answers }).then(reply));
  }

  /** Whether a pairing is live; false if unknown. It has no effect on what is stored. */
  async function isPairingLive(pairing: string, collected: Omit<Parameters<OnCollected>[0], 'pairing'>) {
    const { onCollected } = options;
    if (onCollected === undefined || pairing.length > lengths.pairingMax) return false;
    try {
      return await onCollected({ ...collected, pairing });
    } catch {
      return true;
    }
  }

  const doc = operation(collectDoc, admissionGuard);
  const preflight = operation(collectPreflightDoc);
  const [first] = options.paths;
  const routes = options.paths.map((path) => ({ method: 'post' as const, path, handle }));
  return openRoutes(routes).map((route) => {
    if (route.path !== first) return route;
    return { ...route, doc: route.method === 'options' ? preflight : doc };
  });
}

const notFromThisOrigin = rejection('origin_not_allowed');

type Request = {
  readonly pairing: string | undefined;
  readonly prepared: PreparedMessages;
  readonly environment: LiveEnvironment;
};

/** The pairing of a request. If it is not a text, it is treated as an unknown field. */
function pairingOf(value: unknown): string | undefined {
  const { pairing } = value as { pairing?: unknown };
  return typeof pairing === 'string' ? pairing : undefined;
}
