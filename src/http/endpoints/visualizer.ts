// The devices' side of the Event Visualizer, on the public port and open to pages. A device begins a pairing and shows the code that it
// receives. With a secret that only the device has, it asks for the code again and ends the pairing.

import { pairingSchema } from '../../contract/answers.js';
import { bodies, visualizer as bounds, limitedRetrySeconds } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import { pairingRequestSchema, pairingStopSchema } from '../../contract/schemas.js';
import type { Channel } from '../../insights/visualizer/channel.js';
import {
  type BegunPairing,
  beginPairing,
  endPairing,
  findPairing,
  pairingIdOfSecret,
} from '../../insights/visualizer/pairings.js';
import type { Log } from '../../log.js';
import { parseDocument } from '../../parsing/document.js';
import type { Redis } from '../../redis/client.js';
import type { Environments } from '../../registry/environments.js';
import { answered, documents, json, type OpenApiPart, ref } from '../openapi/document.js';
import { bodyGuard, readJsonBody, type TakeBody, typesOfBrowsers } from '../protocol/body.js';
import { networkOf } from '../protocol/caller-address.js';
import { openRoutes } from '../protocol/cors.js';
import type { Exchange } from '../protocol/exchange.js';
import { attendOrRefuse } from '../protocol/failed.js';
import type { Route } from '../protocol/server.js';
import { appIdOf, findEnvironment, notLoaded, refuseNumericAppId } from './app-id.js';
import { retryAfter } from './rate-limit-headers.js';

export type PairingOptions = {
  readonly redis: Redis;
  readonly environments: Environments;
  readonly channel: Channel;
  readonly log: Log;
};

type Fields = { readonly appId: string; readonly value: { readonly pairing?: unknown } };

const base = '/api/visualizer/pairings';

export function pairingRoutes(options: PairingOptions): Route[] {
  const what = 'a request for a pairing failed';
  const failing = { log: options.log, what, otherwise: unavailable, isForCallers: true };
  const route = (
    path: string,
    doc: object,
    work: (exchange: Exchange, fields: Fields, network: string) => Promise<void>,
  ) => ({
    doc,
    method: 'post' as const,
    path,
    handle: (exchange: Exchange) => {
      const network = networkOf(exchange.address);
      const take: TakeBody = (_, body) => {
        const fields = readFields(body);
        if ('code' in fields) return exchange.refuse(fields);
        attendOrRefuse(exchange, failing, work(exchange, fields, network));
      };
      readJsonBody(exchange, bodies.pairingBytesMax, take, typesOfBrowsers);
    },
  });
  return openRoutes([
    route(base, beginDoc, (exchange, fields, network) => begin(options, exchange, fields, network)),
    route(`${base}/stop`, stopDoc, (exchange, fields) => stop(options, exchange, fields)),
  ]);
}

const tag = 'Event Visualizer';
const documented = documents(tag, bodyGuard);
const exampleSecret = 'slp_M5vcqNS5CSWmnzmT2yAqzQJ8sRzB7mQ5sN2n0Xn0K3A';

export const visualizerPart: OpenApiPart = {
  tag: {
    name: tag,
    description:
      'Pairs a device with the Event Visualizer, a page for administrators that shows live what the device sends. Open to pages of any site (CORS).',
  },
  schemas: {
    PairingRequest: pairingRequestSchema,
    Pairing: pairingSchema,
    PairingStop: pairingStopSchema,
  },
};

/** Clients that avoid a preflight send text/plain. */
function bodyOf(schema: object, example: object): object {
  const content = json(schema, { plain: { summary: 'As a device sends it', value: example } });
  return { ...content, 'text/plain': content['application/json'] };
}

const beginDoc = documented({
  id: 'beginPairing',
  summary: 'Begin a pairing',
  description: `The device shows the code; an administrator enters it on the page within ${bounds.waitingMsMax / 60_000} minutes. Until the pairing ends, the device sends the secret as \`pairing\` with every batch. The pairing ends when it is stopped, when no page has been connected for a minute, and after ${bounds.liveMsMax / 3_600_000} hours. At most ${bounds.waitingPerAppMax} pairings of an environment and ${bounds.waitingPerAddressMax} of an address may wait at a time. A device that already has a secret sends it along, and gets its code again or, if that pairing has ended, a new pairing.`,
  body: bodyOf(ref('PairingRequest'), { app_id: '1' }),
  answers: {
    200: {
      description:
        'The pairing of the secret is still waiting or live. Its code is valid for at least this long.',
      content: json(ref('Pairing'), {
        again: {
          summary: 'Asked for again',
          value: { pairing: exampleSecret, code: 'K7P-3XM', expires_in: 340 },
        },
      }),
    },
    201: {
      description: 'Begun: it waits for its code to be entered.',
      content: json(ref('Pairing'), {
        begun: {
          summary: 'Begun',
          value: { pairing: exampleSecret, code: 'K7P-3XM', expires_in: bounds.waitingMsMax / 1000 },
        },
      }),
    },
  },
  refuses: ['missing_field', 'invalid_type', 'unknown_app_id', 'rate_limited', 'overloaded'],
});

const stopDoc = documented({
  id: 'stopPairing',
  summary: 'Stop a pairing',
  description: 'The page is informed. The answer is the same whether or not there was such a pairing.',
  body: bodyOf(ref('PairingStop'), { app_id: '1', pairing: exampleSecret }),
  answers: { 200: answered('There is none now.', 'Empty') },
  refuses: ['missing_field', 'invalid_type', 'overloaded'],
});

async function begin(
  { redis, environments }: PairingOptions,
  exchange: Exchange,
  { appId, value }: Fields,
  network: string,
): Promise<void> {
  const environment = environments.get(appId) ?? (await findEnvironment(environments, appId));
  if ('code' in environment) return exchange.refuse(environment);
  const fault = refuseNumericAppId(environment, value);
  if (fault !== undefined) return exchange.refuse(fault);
  const { pairing: former } = value;
  if (former !== undefined && typeof former !== 'string') return exchange.refuse(noText);
  const known = former === undefined ? undefined : await findPairing(redis, former, appId);
  if (known !== undefined) return answerPairing(exchange, 200, known);
  const secret = environments.deployment()?.secret;
  if (secret === undefined) return exchange.refuse(notLoaded);
  const begun = await beginPairing(redis, secret, appId, network);
  if (begun === 'full') return exchange.refuse(unavailable);
  if (begun === 'too_many') {
    return exchange.refuse(
      rejection('rate_limited', 'Too many devices are waiting to be paired.'),
      {},
      retryAfter(limitedRetrySeconds.waitingPairings),
    );
  }
  answerPairing(exchange, 201, begun);
}

function answerPairing(
  exchange: Exchange,
  status: 200 | 201,
  { pairing, code, expiresInSeconds }: BegunPairing,
): void {
  exchange.reply(status, JSON.stringify({ pairing, code, expires_in: expiresInSeconds }), [
    ['Cache-Control', 'no-store'],
  ]);
}

async function stop({ redis, channel }: PairingOptions, exchange: Exchange, fields: Fields): Promise<void> {
  const { pairing } = fields.value;
  if (typeof pairing !== 'string') {
    return exchange.refuse(
      pairing === undefined ? rejection('missing_field', 'pairing is missing.', 'pairing') : noText,
    );
  }
  const id = pairingIdOfSecret(pairing);
  if (id !== undefined && (await endPairing(redis, id, fields.appId))) {
    // If this fails, the page notices the end at its next renewal.
    await channel.publish(id, { kind: 'ended', by: 'device' }).catch(() => undefined);
  }
  exchange.ok();
}

const noText = rejection('invalid_type', 'pairing must be a string.', 'pairing');
const unavailable = rejection('overloaded', 'The visualizer is not available now.');

function readFields(body: Buffer): Fields | Rejection {
  const document = parseDocument(body);
  if ('code' in document) return document;
  const appId = appIdOf(document.value);
  if (typeof appId !== 'string') return appId;
  return { appId, value: document.value as { readonly pairing?: unknown } };
}
