// POST /api/collect, the endpoint of the client library: body → document → environment → messages → one commit
// → an answer a message. Open to the pages of any site; nothing of the request but its body counts.

import type { LiveEnvironment } from '../accounts/environments.js';
import { bodies, lengths } from '../contract/limits.js';
import { outcomes, type Rejection } from '../contract/outcomes.js';
import {
  answerMessages,
  type OnCollected,
  type PreparedMessages,
  prepareMessages,
} from '../ingest/collect.js';
import type { CommitResult } from '../ingest/commit.js';
import { type Document, parseDocument } from '../ingest/document.js';
import {
  recordsAccepted,
  recordsRejected,
  recordsRepeated,
  requestsLimited,
  requestsUnavailable,
} from '../metrics.js';
import { appIdOf, findEnvironment, notLoaded, refuseNumericAppId } from './app-id.js';
import { readJsonBody, typesOfBrowsers } from './body.js';
import { openRoutes } from './cors.js';
import type { Exchange } from './exchange.js';
import { type IngestOptions, rejectionOf } from './ingest.js';
import type { Route } from './server.js';

export type CollectOptions = IngestOptions & {
  /** The Event Visualizer's; without one no pairing lives. */
  readonly onCollected?: OnCollected;
};

const endpoint = 'collect';

export function collectRoutes(options: CollectOptions): Route[] {
  const { environments, rejected } = options;

  function handle(exchange: Exchange): void {
    readJsonBody(exchange, bodies.collectBytesMax, (body) => receive(exchange, body), typesOfBrowsers);
  }

  function receive(exchange: Exchange, body: Buffer): void {
    const receivedMs = Date.now();
    const document = parseDocument(body);
    if ('code' in document) return refuse(exchange, document);
    const appId = appIdOf(document.value);
    if (typeof appId !== 'string') return refuse(exchange, appId);
    const bytes = body.length;
    const environment = environments.get(appId);
    if (environment !== undefined) return proceed(exchange, { document, bytes, receivedMs }, environment);
    const go = findEnvironment(environments, appId).then((found) => {
      if ('code' in found) refuse(exchange, found);
      else proceed(exchange, { document, bytes, receivedMs }, found);
    });
    exchange.attend(go);
  }

  function proceed(exchange: Exchange, received: Received, environment: LiveEnvironment): void {
    const { document, bytes, receivedMs } = received;
    const ingestion = options.ingestion();
    if (ingestion === undefined) return refuse(exchange, notLoaded);
    const { limitKeys } = ingestion;
    const prepared =
      refuseNumericAppId(environment, document.value) ??
      prepareMessages(document, { environment, limitKeys, receivedMs });
    const source = { endpoint, appId: environment.appId } as const;
    if ('code' in prepared) {
      rejected.noteRequest(source, prepared, document.value, bytes);
      return refuse(exchange, prepared);
    }
    if (prepared.errors.length > 0) rejected.noteElements(source, prepared.errors, prepared.messages);
    const request = { pairing: pairingOf(document.value), prepared, environment };
    if (prepared.groups.length === 0) return answer(exchange, request, []);
    const settle = exchange.guard((results: readonly CommitResult[]) => answer(exchange, request, results));
    ingestion.committerOf(environment.shard).submitTogether(prepared.groups, settle);
  }

  function answer(exchange: Exchange, request: Request, results: readonly CommitResult[]): void {
    const { prepared, environment } = request;
    // The groups go in one commit: when one is not answered, none is.
    for (const result of results) {
      if (result.kind === 'failed') return exchange.fail(result.fault);
      if (result.kind === 'overloaded' || result.kind === 'unknown') {
        return refuse(exchange, rejectionOf(result));
      }
    }
    const { answers, stored, repeated, limited } = answerMessages(prepared, results);
    if (stored > 0) recordsAccepted.inc({ endpoint }, stored);
    if (repeated > 0) recordsRepeated.inc({ endpoint }, repeated);
    if (limited > 0) requestsLimited.inc({ endpoint, limit: 'user_properties' }, limited);
    for (const { code } of prepared.errors) recordsRejected.inc({ endpoint, code });
    if (prepared.mendings.size > 0) options.countMendings(environment.appId, prepared.mendings);

    const reply = (lives: boolean) => {
      const body = lives ? { messages: answers } : { messages: answers, pairing: 'ended' };
      exchange.reply(200, JSON.stringify(body));
    };
    if (request.pairing === undefined) return reply(true);
    const { messages } = prepared;
    exchange.attend(lives(request.pairing, { appId: environment.appId, messages, answers }).then(reply));
  }

  /** Whether a pairing lives, as far as anybody can say; what is stored does not depend on it. */
  async function lives(pairing: string, collected: Omit<Parameters<OnCollected>[0], 'pairing'>) {
    const { onCollected } = options;
    if (onCollected === undefined || pairing.length > lengths.pairingMax) return false;
    try {
      return await onCollected({ ...collected, pairing });
    } catch {
      return true;
    }
  }

  function refuse(exchange: Exchange, reason: Rejection): void {
    const { code } = reason;
    if (outcomes[code].status === 503) requestsUnavailable.inc({ endpoint, code });
    else recordsRejected.inc({ endpoint, code });
    exchange.refuse(reason);
  }

  return openRoutes([{ method: 'post', path: '/api/collect', handle }]);
}

type Received = { readonly document: Document; readonly bytes: number; readonly receivedMs: number };

type Request = {
  readonly pairing: string | undefined;
  readonly prepared: PreparedMessages;
  readonly environment: LiveEnvironment;
};

/** What is no text is a field that this service does not know. */
function pairingOf(value: unknown): string | undefined {
  const { pairing } = value as { pairing?: unknown };
  return typeof pairing === 'string' ? pairing : undefined;
}
