// The API that a team would write first: Fastify with a schema, a counter in Redis for the limit, and one BullMQ job per request. Bulk
// requests have no limit, like those of the service's runs with which it is compared.

import { randomUUID } from 'node:crypto';
import { Queue } from 'bullmq';
import Fastify from 'fastify';
import { Redis } from 'ioredis';
import { peerQueue } from './shared.js';

type PeerEvent = {
  readonly event: string;
  readonly identity: string;
  readonly timestamp?: string;
  readonly properties?: Readonly<Record<string, string | number>>;
};
type PeerBody = { readonly app_id: string } & (PeerEvent | { readonly events: readonly PeerEvent[] });

const limit = { max: 30, seconds: 30 };

const redis = new Redis(process.env.REDIS_URL ?? '');
const queue = new Queue(peerQueue, { connection: new Redis(process.env.REDIS_URL ?? '') });

const event = {
  type: 'object',
  required: ['event', 'identity'],
  properties: {
    event: { type: 'string', minLength: 1, maxLength: 1024 },
    identity: { type: 'string', minLength: 1, maxLength: 255 },
    timestamp: { type: 'string', format: 'date-time' },
    properties: {
      type: 'object',
      maxProperties: 1000,
      additionalProperties: { anyOf: [{ type: 'string', maxLength: 1023 }, { type: 'number' }] },
    },
  },
};
const appId = { app_id: { type: 'string' } };
const body = {
  if: { required: ['events'] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
  then: {
    type: 'object',
    required: ['app_id'],
    properties: { ...appId, events: { type: 'array', minItems: 1, maxItems: 1000, items: event } },
  },
  else: {
    ...event,
    required: ['app_id', ...event.required],
    properties: { ...appId, ...event.properties },
  },
};

const app = Fastify({ bodyLimit: 16 * 1024 * 1024 });

app.post<{ Body: PeerBody }>('/api/track', { schema: { body } }, async ({ body: request }, reply) => {
  if ('event' in request && !(await fitsLimit(request.app_id, request.identity))) {
    return reply.code(429).send({ err: { message: 'Too many requests', code: 'rate_limited' } });
  }
  await queue.add('events', rowsOf(request), { removeOnComplete: true, attempts: 5 });
  return {};
});

/** The rows of a request. */
function rowsOf(body: PeerBody): object[] {
  return ('events' in body ? body.events : [body]).map(({ event, identity, timestamp, properties }) => ({
    app_id: body.app_id,
    event_id: randomUUID(),
    event,
    identity,
    time: timestamp ?? new Date().toISOString(),
    properties: properties ?? {},
  }));
}

async function fitsLimit(app: string, identity: string): Promise<boolean> {
  const key = `limit:${app}:${identity}`;
  const count = await redis.incr(key);
  if (count === 1) await redis.expire(key, limit.seconds);
  return count <= limit.max;
}

await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT) });
