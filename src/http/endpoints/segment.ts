// Segment's protocol, /v1/*, for its libraries and others that use the protocol, on servers and in pages: body → credential → admission →
// messages → one commit → answer. Also serves the settings that libraries for pages and phones load when they start.

import type { HttpRequest } from 'uWebSockets.js';
import { bodies, browserCaches, counts } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import { type SegmentType, segmentTypes } from '../../contract/segment.js';
import type { CommitResult } from '../../ingest/attempts.js';
import { type PreparedSegment, prepareSegment } from '../../ingest/segment.js';
import type { LiveEnvironment } from '../../registry/environments.js';
import { operation } from '../openapi/document.js';
import { segmentDoc } from '../openapi/segment.js';
import { readBasicName } from '../protocol/authorization.js';
import { anyType, readJsonBody } from '../protocol/body.js';
import { openRoutes } from '../protocol/cors.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import type { Guard } from '../protocol/guard.js';
import type { Route } from '../protocol/server.js';
import { withResult } from '../protocol/slices.js';
import {
  type Admission,
  type Admitted,
  admissionGuard,
  createAdmission,
  type IngestOptions,
  repeatsHeader,
} from './admission.js';
import { type LargeBodyOptions, withinAllowance } from './byte-allowance.js';
import { writeKeyGuard } from './write-access.js';

export type SegmentOptions = IngestOptions &
  LargeBodyOptions & {
    /** The address at which pages reach this service. */
    readonly publicBaseUrl: string;
  };

const endpoint = 'segment';
/** The fields whose content is stored as properties. */
const propertyFields: ReadonlySet<string> = new Set(['properties', 'traits', 'context']);
/** The headers that the libraries send besides their type. A page may send only headers that the preflight names. */
const sentHeaders = ['Authorization', 'X-Retry-Count', 'AnonymousId'];

/** A write key, or the app_id, as the user name (`credentialOf`, `admits`). */
const keyGuard: Guard = { ...writeKeyGuard, security: [{ segmentKey: [] }] };

export function segmentRoutes(options: SegmentOptions): Route[] {
  const { environments } = options;

  /** What names the environment; a write key names it too. */
  function credentialOf({ framing }: Exchange, value: unknown): string | Rejection {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      return rejection('invalid_type', 'The body must be an object.');
    const credential = readCredential(framing.authorization, value);
    if (credential === undefined) return noCredential;
    return environments.ofWriteKey(credential)?.appId ?? credential;
  }

  function admits(environment: LiveEnvironment, authorization: string | undefined, value: unknown): boolean {
    if (!environment.needsWriteKey) return true;
    const credential = readCredential(authorization, value);
    return credential !== undefined && environments.ofWriteKey(credential) === environment;
  }

  function route(path: string, type: SegmentType | undefined): Route {
    const bytesMax = type === undefined ? bodies.segmentBytesMax : bodies.singleBytesMax;
    const admission = createAdmission(endpoint, options, {
      list: { field: 'batch', recordsMax: counts.segmentMessagesMax },
      propertyFields,
      proceed,
      credentialOf,
      admits,
    });
    const take = withinAllowance(endpoint, options.largeBodies, admission.receive);
    return {
      method: 'post',
      path: `/v1/${path}`,
      // The other paths of the same endpoint are not in the OpenAPI document.
      ...(path === (type ?? 'batch') && { doc: operation(segmentDoc(path), admissionGuard, keyGuard) }),
      handle: (exchange) => {
        exchange.saysWhyAtTop = true;
        readJsonBody(exchange, bytesMax, take, anyType);
      },
    };

    function proceed(exchange: Exchange, admitted: Admitted): void {
      const { document, environment, ingestion, receivedMs } = admitted;
      const { limitKeys, suppressions } = ingestion;
      const preparing = prepareSegment(document, type, { environment, limitKeys, suppressions, receivedMs });
      withResult(exchange, document.isLarge, preparing, (prepared) => submit(exchange, admitted, prepared));
    }

    function submit(exchange: Exchange, admitted: Admitted, prepared: PreparedSegment): void {
      const { document, environment, ingestion } = admitted;
      if (prepared.kind === 'refused' && prepared.errors === undefined)
        return admission.refuseAndNote(exchange, prepared.reason, admitted);
      const { errors = [] } = prepared;
      const { value } = document as { value: { batch: readonly unknown[] } };
      if (errors.length > 0)
        admission.noteElements(admitted, errors, type === undefined ? value.batch : [value]);
      if (prepared.kind === 'refused')
        return acknowledge(exchange, admission, environment, { ...nothingReady, errors }, { letters: '' });
      const settle = ([result]: readonly CommitResult[]) =>
        exchange.run(answer, exchange, admitted, prepared, result as CommitResult);
      ingestion.committerOf(environment.shard).submit(prepared.submission, settle);
    }

    function answer(exchange: Exchange, admitted: Admitted, prepared: Ready, result: CommitResult): void {
      const { submission, recordsOf } = prepared;
      const { environment } = admitted;
      if (result.kind === 'committed') return acknowledge(exchange, admission, environment, prepared, result);
      const request = { submission, records: recordsOf.length };
      admission.refuseUncommitted(exchange, environment, request, result);
    }
  }

  /**
   * A request that has only bad messages is answered 200 too, as Segment does: otherwise libraries send it again and again, or stop their
   * program.
   */
  function acknowledge(
    exchange: Exchange,
    admission: Admission,
    { appId }: LiveEnvironment,
    { recordsOf, errors, mendings }: Pick<Ready, 'recordsOf' | 'errors' | 'mendings'>,
    { letters }: { readonly letters: string },
  ): void {
    let [stored, repeated, suppressed, unjoined, at] = [0, 0, 0, 0, 0];
    for (const count of recordsOf) {
      const ofMessage = letters.slice(at, at + count);
      at += count;
      if (ofMessage.includes('s')) stored += 1;
      else if (!/[ku]/.test(ofMessage)) repeated += 1;
      for (const letter of ofMessage) {
        if (letter === 'k' || letter === 'u') suppressed += 1;
        if (letter === 'u') unjoined += 1;
      }
    }
    admission.countRecords(appId, { stored, repeated, suppressed, unjoined, errors, mendings });
    if (repeated > 0) exchange.addHeader(repeatsHeader, String(repeated));
    if (errors.length === 0) return exchange.reply(200, '{"success":true}');
    const accepted = recordsOf.length;
    const body = { success: accepted > 0, accepted, rejected: errors.length, errors };
    exchange.reply(200, JSON.stringify(body));
  }

  /** The settings that the library for pages loads: this service is its only destination. */
  function settings(exchange: Exchange, req: HttpRequest): void {
    const url = new URL(options.publicBaseUrl);
    const apiHost = `${url.host}${url.pathname.replace(/\/$/, '')}/v1`;
    const apiKey = req.getParameter(0) ?? '';
    const destination = { apiKey, apiHost, protocol: url.protocol.replace(':', ''), ...withoutExtras };
    const body = { integrations: { 'Segment.io': destination }, ...noPlugins };
    exchange.dropBody().reply(200, JSON.stringify(body), cached);
  }

  /** What RudderStack's libraries for phones and pages load before they send. Without it they send nothing. */
  function sourceConfig(exchange: Exchange, req: HttpRequest): void {
    const writeKey = readBasicName(exchange.framing.authorization) ?? req.getQuery('writeKey') ?? '';
    const source = { id: writeKey, name: 'Sluice', writeKey, workspaceId: 'sluice', ...onlySource };
    const body = JSON.stringify({ source, updatedAt: onlySource.updatedAt });
    // The write key may have come in a header, so a shared cache would give one client's answer to all others.
    exchange.dropBody().reply(200, body, ownCached);
  }

  // RudderStack's library for Java ends the path with a slash.
  const batches = ['batch', 'b', 'import', 'import/'].map((path) => route(path, undefined));
  // RudderStack's library for pages shortens the types to their first letters.
  const singles = segmentTypes.flatMap((type) => [route(type, type), route(type.slice(0, 1), type)]);
  const settingsRoute: Route = { method: 'get', path: '/v1/projects/:key/settings', handle: settings };
  const sourceRoutes = ['/sourceConfig', '/sourceConfig/'].map(
    (path): Route => ({ method: 'get', path, handle: sourceConfig }),
  );
  return openRoutes([...batches, ...singles, settingsRoute, ...sourceRoutes], sentHeaders);
}

type Ready = Extract<PreparedSegment, { kind: 'ready' }>;
const nothingReady = { recordsOf: [], mendings: new Map() };

const withoutExtras = { addBundledMetadata: false, unbundledIntegrations: [], maybeBundledConfigIds: {} };
const noPlugins = { plan: {}, edgeFunction: {}, metrics: { sampleRate: 0 }, remotePlugins: [] };
/** The source is enabled, and has no destinations to which the library would send by itself. */
const onlySource = {
  enabled: true,
  config: { statsCollection: { errors: { enabled: false }, metrics: { enabled: false } } },
  destinations: [],
  dataplanes: {},
  updatedAt: '2026-01-01T00:00:00.000Z',
};
const maxAge = `max-age=${browserCaches.segmentSettingsSeconds}`;
const cached: Headers = [['Cache-Control', `public, ${maxAge}`]];
const ownCached: Headers = [['Cache-Control', `private, ${maxAge}`]];

/** The user name of HTTP Basic credentials, or else the field writeKey of the body. */
function readCredential(authorization: string | undefined, value: unknown): string | undefined {
  const { writeKey } = (value ?? {}) as { writeKey?: unknown };
  const credential = readBasicName(authorization) ?? writeKey;
  return typeof credential === 'string' && credential !== '' ? credential : undefined;
}

const noCredential = rejection(
  'unauthorized',
  'Unauthorized: send the app_id or a write key as the user name of HTTP Basic credentials, or as writeKey in the body.',
);
