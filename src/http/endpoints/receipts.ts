// POST /api/v1/receipts: what has happened to records, by their idempotency keys. Only callers with a write key of the environment, who
// have sent the records, get an answer. A record of a suppressed user is reported as stored, as it was when it was sent.

import { createPlaces } from '../../concurrency.js';
import { type Receipt, receiptsAnswerSchema } from '../../contract/answers.js';
import { bodies, counts, receipts } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import { type ReceiptsInput, receiptsSchema } from '../../contract/schemas.js';
import { Compile } from '../../contract/typebox.js';
import { addIgnored, fieldNames, noIgnoredFields, textOfIgnored } from '../../ingest/ignored-fields.js';
import type { ReceiptsLimited } from '../../insights/receipts.js';
import type { Log } from '../../log.js';
import type { Document } from '../../parsing/document.js';
import { explain, refuseLoneSurrogates } from '../../parsing/explain.js';
import type { Environments, LiveEnvironment } from '../../registry/environments.js';
import { answered, ignoredHeader, json, type OpenApiPart, operation, ref } from '../openapi/document.js';
import { asUnauthorized, refuseUnauthorized } from '../protocol/authorization.js';
import { bodyGuard, readJsonBody } from '../protocol/body.js';
import { ignoredFieldsHeader } from '../protocol/cors.js';
import type { Exchange } from '../protocol/exchange.js';
import { attendOrRefuse } from '../protocol/failed.js';
import type { Guard } from '../protocol/guard.js';
import { parseBody } from '../protocol/parse-body.js';
import type { Route } from '../protocol/server.js';
import { appIdOf, findEnvironment, refuseNumericAppId } from './app-id.js';
import { type LargeBodyOptions, withinAllowance } from './byte-allowance.js';
import { retryAfter } from './rate-limit-headers.js';
import { needsWriteKey, type WriteAccess, writeKeyChallenge } from './write-access.js';

export type ReceiptsApiOptions = LargeBodyOptions & {
  readonly environments: Environments;
  readonly hasWriteKey: WriteAccess;
  /** Settles with the receipts of these keys, in the same order. */
  readonly find: (
    environment: LiveEnvironment,
    keys: readonly string[],
  ) => Promise<readonly Receipt[] | ReceiptsLimited>;
  readonly log: Log;
};

const path = '/api/v1/receipts';
const list = { field: 'idempotency_keys', recordsMax: counts.receiptKeysMax };
const asked = Compile(receiptsSchema);
const known = fieldNames(receiptsSchema);

export function receiptRoutes(options: ReceiptsApiOptions): Route[] {
  const { environments, hasWriteKey, find, largeBodies, log } = options;
  const places = createPlaces(receipts.places);
  const failing = { log, what: 'receipts could not be found', otherwise: later, isForCallers: true };

  const take = withinAllowance(path, largeBodies, (exchange, body, owned) =>
    parseBody(exchange, body, owned, { list }, (document) =>
      attendOrRefuse(exchange, failing, answer(exchange, document)),
    ),
  );

  async function answer(exchange: Exchange, document: Document | Rejection): Promise<void> {
    if ('code' in document) return exchange.refuse(document);
    const { value, surrogates } = document;
    const appId = appIdOf(value);
    if (typeof appId !== 'string') return exchange.refuse(appId);
    const environment = environments.get(appId) ?? (await findEnvironment(environments, appId));
    if ('code' in environment) return exchange.refuse(environment);
    const refusal = refusalOf(environment, exchange, value);
    if (refusal === needsWriteKey) return refuseUnauthorized(exchange, refusal, writeKeyChallenge);
    const wrong =
      refusal ?? explain(asked, value) ?? (surrogates ? refuseLoneSurrogates(value as object) : undefined);
    if (wrong !== undefined) return exchange.refuse(wrong);
    const ignored = noIgnoredFields();
    addIgnored(value, known, ignored);
    if (ignored.count > 0) exchange.addHeader(ignoredFieldsHeader, textOfIgnored(ignored));

    const { idempotency_keys: keys } = value as ReceiptsInput;
    const found = await places.within({ account: environment.accountId }, () => find(environment, keys));
    if (found === 'busy') return exchange.refuse(later);
    if ('waitMs' in found) return exchange.refuse(tooMany, {}, retryAfter(found.waitMs / 1000));
    exchange.reply(200, JSON.stringify({ receipts: found }));
  }

  function refusalOf(
    environment: LiveEnvironment,
    exchange: Exchange,
    value: unknown,
  ): Rejection | undefined {
    if (!environment.hasWriteKey) return noWriteKey;
    if (!hasWriteKey(environment, exchange.framing.authorization)) return needsWriteKey;
    return refuseNumericAppId(environment, value);
  }

  return [
    {
      method: 'post',
      path,
      handle: (exchange) => readJsonBody(exchange, bodies.lookupBytesMax, take),
      doc,
    },
  ];
}

const later = rejection('overloaded');
const noWriteKey = rejection('write_key_required');
const tooMany = rejection(
  'rate_limited',
  `At most ${receipts.keysPerSecondMax} keys of an environment may be asked about in a second.`,
);

/** The environment must have a write key, and the caller must send one. */
const guard: Guard = {
  ...asUnauthorized,
  security: [{ writeKey: [] }, { writeKeyAsToken: [] }],
  refuses: ['unauthorized', 'write_key_required', 'unknown_app_id', 'rate_limited', 'overloaded'],
};

export const receiptsPart: OpenApiPart = {
  tag: { name: 'Receipts', description: 'What has become of the records that servers have sent.' },
  schemas: { ReceiptsRequest: receiptsSchema, Receipts: receiptsAnswerSchema },
};

const doc = operation(
  {
    id: 'findReceipts',
    tag: receiptsPart.tag.name,
    summary: 'What has become of records, by their idempotency keys',
    description: [
      'With a write key of the environment, which must have one. Every key gets an answer, in the order asked, even one that is asked twice. A record is known by its key alone, whichever endpoint it came by.',
      'A record of a suppressed user is reported as stored, as when it was sent.',
      `At most ${receipts.keysPerSecondMax} keys a second for each environment.`,
    ].join('\n\n'),
    body: json(ref('ReceiptsRequest')),
    answers: {
      200: answered('In the order asked.', 'Receipts', ignoredHeader),
    },
    refuses: ['missing_field', 'invalid_type', 'empty', 'too_long', 'too_many_records', 'invalid_text'],
  },
  bodyGuard,
  guard,
);
