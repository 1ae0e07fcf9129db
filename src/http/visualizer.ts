// The devices' side of the Event Visualizer, on the public port and open to pages: a device begins a pairing
// and shows the code that it gets; by the secret that only it has, it asks for the code again, and ends it.

import type { Environments } from '../accounts/environments.js';
import { visualizer } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { parseDocument } from '../ingest/document.js';
import { describeError, type Log } from '../log.js';
import type { Redis } from '../redis/client.js';
import type { Channel } from '../visualizer/channel.js';
import { type Begun, beginPairing, endPairing, findPairing, idOfSecret } from '../visualizer/pairings.js';
import { appIdOf, findEnvironment, notLoaded, refuseNumericAppId } from './app-id.js';
import { readJsonBody, typesOfBrowsers } from './body.js';
import { openRoutes } from './cors.js';
import type { Exchange } from './exchange.js';
import { isOwnFault } from './fault.js';
import type { Route } from './server.js';

export type PairingOptions = {
  readonly redis: Redis;
  readonly environments: Environments;
  readonly channel: Channel;
  readonly log: Log;
};

type Fields = { readonly appId: string; readonly value: { readonly pairing?: unknown } };

const base = '/api/visualizer/pairings';

export function pairingRoutes(options: PairingOptions): Route[] {
  const route = (
    path: string,
    work: (exchange: Exchange, fields: Fields, address: string) => Promise<void>,
  ) => ({
    method: 'post' as const,
    path,
    handle: (exchange: Exchange) => {
      const { address } = exchange;
      const take = (body: Buffer) => {
        const fields = readFields(body);
        if ('code' in fields) return exchange.refuse(fields);
        const answered = work(exchange, fields, address).catch((error: unknown) => {
          if (isOwnFault(error)) throw error;
          options.log.warn({ error: describeError(error) }, 'a request for a pairing failed');
          exchange.refuse(unavailable);
        });
        exchange.attend(answered);
      };
      readJsonBody(exchange, visualizer.bodyBytesMax, take, typesOfBrowsers);
    },
  });
  return openRoutes([
    route(base, (exchange, fields, address) => begin(options, exchange, fields, address)),
    route(`${base}/stop`, (exchange, fields) => stop(options, exchange, fields)),
  ]);
}

async function begin(
  { redis, environments }: PairingOptions,
  exchange: Exchange,
  { appId, value }: Fields,
  address: string,
): Promise<void> {
  const environment = environments.get(appId) ?? (await findEnvironment(environments, appId));
  if ('code' in environment) return exchange.refuse(environment);
  const fault = refuseNumericAppId(environment, value);
  if (fault !== undefined) return exchange.refuse(fault);
  const { pairing: former } = value;
  if (former !== undefined && typeof former !== 'string') return exchange.refuse(noText);
  const known = former === undefined ? undefined : await findPairing(redis, former, appId);
  if (known !== undefined) return tell(exchange, 200, known);
  const secret = environments.deployment()?.secret;
  if (secret === undefined) return exchange.refuse(notLoaded);
  const begun = await beginPairing(redis, secret, appId, address);
  if (begun === 'full') return exchange.refuse(unavailable);
  if (begun === 'too_many') {
    return exchange.refuse(rejection('rate_limited', 'Too many devices wait to be paired.'), {}, [
      ['Retry-After', '60'],
    ]);
  }
  tell(exchange, 201, begun);
}

function tell(exchange: Exchange, status: 200 | 201, { pairing, code, expiresInSeconds }: Begun): void {
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
  const id = idOfSecret(pairing);
  if (id !== undefined && (await endPairing(redis, id, fields.appId))) {
    // The page learns it by its next renewal at the latest.
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
