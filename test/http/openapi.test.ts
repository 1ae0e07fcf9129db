// The OpenAPI document: valid, complete, made from the schemas that check requests, and true of a running service.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Validator } from '@seriousme/openapi-schema-validator';
import type { TSchema } from 'typebox';
import { bodies } from '../../src/contract/limits.js';
import { type OutcomeCode, outcomes } from '../../src/contract/outcomes.js';
import { eventSchema, identifySchema, userPropertiesSchema } from '../../src/contract/records.js';
import {
  bulkEventsSchema,
  eventMessageSchema,
  identifyMessageSchema,
  userPropertiesMessageSchema,
} from '../../src/contract/schemas.js';
import { Compile } from '../../src/contract/typebox.js';
import { openApiDocument } from '../../src/http/openapi/document.js';
import { ingestPart } from '../../src/http/openapi/ingest.js';
import { sharedSluice } from '../support/sluice.js';

type Example = { readonly summary: string; readonly value: object; readonly 'x-request'?: object };
type Content = Readonly<
  Record<string, { readonly schema: object; readonly examples?: Record<string, Example> }>
>;
type Answer = {
  readonly description: string;
  readonly headers?: Readonly<Record<string, { readonly required?: boolean }>>;
  readonly content?: Content;
};
type Operation = {
  readonly operationId: string;
  readonly 'x-version'?: string;
  readonly description?: string;
  readonly security?: readonly object[];
  readonly requestBody?: { readonly content: Content };
  readonly responses: Readonly<Record<string, Answer>>;
};
type Document = {
  readonly openapi: string;
  readonly info: { readonly version: string };
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Record<string, unknown>>> };
};

const sluice = await sharedSluice();
const reply = await fetch(`${sluice.baseUrl}/openapi.json`);
assert.equal(reply.status, 200);
assert.equal(reply.headers.get('content-type'), 'application/json');
const document = (await reply.json()) as Document;
const validator = new Validator();
const { valid, errors } = await validator.validate(structuredClone(document));
assert.deepEqual({ valid, errors }, { valid: true, errors: undefined });
/** The same document with every reference resolved. */
const resolved = validator.resolveRefs() as Document;

const ingestPaths = ['/api/track', '/api/add_user_properties', '/api/v1/identify'];
const postOf = (path: string) => resolved.paths[path]?.post as Operation;

async function send(path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${sluice.baseUrl}${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
  });
}

/** Compares an answer with the document's schema for its status; settles with the body. */
async function checkAnswer(operation: Operation, reply: Response): Promise<unknown> {
  const answer = operation.responses[reply.status];
  assert.ok(answer, `${operation.operationId}: ${reply.status} is documented`);
  for (const [name, { required }] of Object.entries(answer.headers ?? {})) {
    if (required) assert.ok(reply.headers.has(name), `${operation.operationId} ${reply.status}: ${name}`);
  }
  const body: unknown = await reply.json();
  assertHolds(answer.content?.['application/json']?.schema, body);
  return body;
}

function assertHolds(schema: object | undefined, value: unknown): void {
  const errors = Compile(schema as TSchema).Errors(value);
  assert.deepEqual(errors, [], JSON.stringify(value));
}

/** The example with an app_id that exists. */
function real(request: object): object {
  return { ...request, app_id: sluice.appId };
}

test('the document is an OpenAPI 3.1 document of this address with ingestion and health', () => {
  assert.equal(document.openapi, '3.1.0');
  assert.equal(document.info.version, '1.0');
  assert.equal(postOf('/api/track')['x-version'], '1.0');
  assert.deepEqual(
    document.servers.map(({ url }) => url),
    [sluice.baseUrl],
  );
  for (const path of ['/api/track', '/api/add_user_properties', '/api/v1/identify']) {
    const [none, ...others] = postOf(path).security ?? [];
    assert.deepEqual(none, {}, 'ingestion has an empty security requirement');
    assert.deepEqual(others, [{ writeKey: [] }, { writeKeyAsToken: [] }], 'a write key may be sent');
  }
  for (const path of ['/health/live', '/health/ready', '/openapi.json']) assert.ok(resolved.paths[path]?.get);
});

test('a broken document is found invalid', async () => {
  const broken = structuredClone(document) as unknown as { paths: Record<string, { post: object }> };
  broken.paths['/api/track'] = { post: { responses: { 200: {} } } };
  assert.equal((await new Validator().validate(broken)).valid, false);
});

test('the document has no broken reference, and two parts cannot define the same schema', () => {
  const references = JSON.stringify(document).match(/(?<="\$ref":"#\/components\/schemas\/)[^"]+/g) ?? [];
  assert.ok(references.length > 50, String(references.length));
  for (const name of references) assert.ok(document.components.schemas[name], name);
  assert.throws(() => openApiDocument('', [ingestPart, ingestPart]), /define TrackRequest/);
});

test('lists every code of the table with its status, its meaning and whether to repeat', () => {
  const schema = document.components.schemas.ErrorCode;
  assert.deepEqual(schema?.enum, Object.keys(outcomes));
  for (const [code, { status, retry, meaning }] of Object.entries(outcomes)) {
    assert.ok(
      String(schema?.description).includes(`| \`${code}\` | ${status} | ${retry} | ${meaning} |`),
      code,
    );
  }
});

test('an operation documents each code under its status, with its meaning', () => {
  for (const path of [...ingestPaths, '/api/collect']) {
    const { responses } = postOf(path);
    for (const status of [400, 413, 415, 503]) assert.ok(responses[status], `${path} ${status}`);
    for (const [status, { description }] of Object.entries(responses)) {
      const codes = description.match(/(?<=^- `)\w+(?=`: )/gm) ?? [];
      assert.equal(codes.length > 0, status !== '200', `${path} ${status}`);
      for (const code of codes) {
        assert.equal(outcomes[code as OutcomeCode].status, Number(status));
        assert.ok(description.includes(outcomes[code as OutcomeCode].meaning));
      }
    }
  }
  assert.ok(postOf('/api/track').responses[429]);
  assert.equal(postOf('/api/v1/identify').responses[429], undefined, 'identify has no limit');
  assert.ok(
    postOf('/api/collect').responses[429],
    'messages are limited one by one, and only an address as a whole gets a 429',
  );
});

test('shows the schemas that check requests, only with more words', () => {
  const { schemas } = document.components;
  const more = new Set(['oneOf', 'pattern', 'format', 'maxProperties', 'propertyNames', 'description']);
  const assertContains = (shown: unknown, checked: unknown, path: string): void => {
    if (typeof checked !== 'object' || checked === null) return assert.equal(shown, checked, path);
    const [a, b] = [shown, checked].map((value) => ({ ...(value as Record<string, unknown>) }));
    for (const key of Object.keys(b as object)) assertContains(a?.[key], b?.[key], `${path}.${key}`);
    const added = Object.keys(a as object).filter((key) => !Object.hasOwn(b as object, key));
    assert.deepEqual(
      added.filter((key) => !more.has(key)),
      [],
      path,
    );
  };
  const plain = (schema: object) => {
    const { description: _, ...rest } = JSON.parse(JSON.stringify(schema));
    return rest;
  };
  assertContains(schemas.Event, plain(eventSchema), 'Event');
  assertContains(schemas.User, plain(userPropertiesSchema), 'User');
  assertContains(schemas.EventMessage, plain(eventMessageSchema), 'EventMessage');
  assertContains(schemas.IdentifyMessage, plain(identifyMessageSchema), 'IdentifyMessage');
  assertContains(schemas.UserPropertiesMessage, plain(userPropertiesMessageSchema), 'UserPropertiesMessage');
  const withoutAppId = (name: string) => {
    const { required, properties, ...rest } = structuredClone(schemas[name]) as {
      required: string[];
      properties: Record<string, object>;
    };
    assert.equal(required[0], 'app_id');
    delete properties.app_id;
    return { ...rest, required: required.slice(1), properties };
  };
  assertContains(withoutAppId('TrackRequest'), plain(eventSchema), 'TrackRequest');
  assertContains(withoutAppId('UserPropertiesRequest'), plain(userPropertiesSchema), 'UserPropertiesRequest');
  assertContains(withoutAppId('IdentifyRequest'), plain(identifySchema), 'IdentifyRequest');
  const { maxItems, minItems } = plain(bulkEventsSchema).properties.events;
  const bulk = schemas.BulkTrackRequest as { properties?: { events: Record<string, unknown> } };
  const shown = bulk.properties?.events;
  assert.deepEqual([shown?.maxItems, shown?.minItems], [maxItems, minItems]);
});

test('carries the advice of the specification', () => {
  const text = JSON.stringify(document);
  for (const advice of [
    'broad event names and tell variants apart by properties',
    'Send e-mail addresses in lower case: the service never changes the case',
    'Never send a generic word such as',
    'has no version in its path',
    '30 requests per 30 seconds',
    '1000 events per 60 seconds',
    '15000 events per 60 seconds',
  ]) {
    assert.ok(text.includes(advice), advice);
  }
});

test('every example of a request matches its schema and is answered 200 {}', async () => {
  for (const path of ingestPaths) {
    const operation = postOf(path);
    const content = operation.requestBody?.content['application/json'];
    const examples = Object.entries(content?.examples ?? {});
    const forms = (content?.schema as { oneOf?: unknown[] } | undefined)?.oneOf?.length ?? 1;
    assert.ok(examples.length >= forms, `${path} has an example of each form of a request`);
    for (const [name, { value }] of examples) {
      assertHolds(content?.schema, value);
      const reply = await send(path, real(value));
      assert.equal(reply.status, 200, `${path} ${name}`);
      assert.deepEqual(await checkAnswer(operation, reply), {}, `${path} ${name}`);
    }
  }
});

test('every example of an answer matches its schema and is what its request gets', async () => {
  let sent = 0;
  for (const [path, operations] of Object.entries(resolved.paths)) {
    for (const operation of Object.values(operations)) {
      for (const [status, { content }] of Object.entries(operation.responses)) {
        const { schema, examples } = content?.['application/json'] ?? {};
        for (const [name, { value, 'x-request': request }] of Object.entries(examples ?? {})) {
          assertHolds(schema, value);
          if (request === undefined) continue;
          const reply = await send(path, real(request));
          assert.equal(reply.status, Number(status), `${path} ${name}`);
          assert.deepEqual(await checkAnswer(operation, reply), value, `${path} ${name}`);
          sent += 1;
        }
      }
    }
  }
  assert.equal(sent, 8);
});

test('every example of a request by the client library is stored, message by message', async () => {
  const operation = postOf('/api/collect');
  const content = operation.requestBody?.content['application/json'];
  const examples = Object.values(content?.examples ?? {});
  assert.ok(examples.length > 0);
  for (const { value } of examples) {
    assertHolds(content?.schema, value);
    for (const [type, status] of [
      ['application/json', 'stored'],
      ['text/plain', 'repeat'],
    ] as const) {
      assert.ok(operation.requestBody?.content[type], `${type} is documented`);
      const reply = await send('/api/collect', real(value), { 'Content-Type': type });
      const { messages } = (await checkAnswer(operation, reply)) as { messages: { status: string }[] };
      assert.deepEqual(
        messages.map((message) => message.status),
        (value as { messages: object[] }).messages.map(() => status),
      );
    }
  }
});

test('answers of the endpoint of the client library are as documented: 413, 415, 400', async () => {
  const operation = postOf('/api/collect');
  const statuses: number[] = [];
  for (const [body, headers] of [
    ['x'.repeat(bodies.collectBytesMax + 1), {}],
    ['{}', { 'Content-Encoding': 'br' }],
    ['{}', {}],
  ] as const) {
    const reply = await send('/api/collect', body, headers);
    statuses.push(reply.status);
    await checkAnswer(operation, reply);
  }
  assert.deepEqual(statuses, [413, 415, 400]);
});

test('the service accepts every example of a single field', async () => {
  const event = { event: 'x', identity: 'fields' };
  for (const [name, schema] of Object.entries(eventSchema.properties)) {
    const { examples } = schema as unknown as { examples?: unknown[] };
    for (const example of examples ?? []) {
      const fields: Record<string, unknown> = { ...event, [name]: example };
      if (name === 'user_id') delete fields.identity;
      const reply = await send('/api/track', real(fields));
      assert.equal(reply.status, 200, `${name}: ${await reply.text()}`);
    }
  }
});

test('what the document forbids beyond the schemas, the service refuses', async () => {
  const schema = resolved.components.schemas.TrackRequest as object;
  const base = { app_id: '1', event: 'x' };
  const bad = [
    base,
    { ...base, identity: 'a', user_id: '1' },
    { ...base, user_id: '01' },
    { ...base, identity: 'a', properties: { session_id: 1 } },
    { ...base, identity: 'a', properties: { ['k'.repeat(1024)]: 1 } },
    {
      ...base,
      identity: 'a',
      properties: Object.fromEntries(Array.from({ length: 1001 }, (_, i) => [i, 1])),
    },
    { ...base, identity: 'a', timestamp: '2026-03-01' },
  ];
  for (const request of bad) {
    assert.notDeepEqual(
      Compile(schema as TSchema).Errors(request),
      [],
      JSON.stringify(request).slice(0, 100),
    );
    const reply = await send('/api/track', real(request));
    assert.equal(reply.status, 400);
    await checkAnswer(postOf('/api/track'), reply);
  }
});

test('answers of every other status are as documented: 413, 415, 429, health', async () => {
  const track = postOf('/api/track');
  const body = real({ event: 'x', identity: 'statuses' });
  const statuses: number[] = [];
  const check = async (reply: Response) => {
    statuses.push(reply.status);
    await checkAnswer(track, reply);
  };
  await check(await send('/api/track', gzipSync(JSON.stringify(body)), { 'Content-Encoding': 'gzip' }));
  const unknown = await send('/api/track', JSON.stringify(body), { 'Content-Encoding': 'br' });
  assert.match(String(unknown.headers.get('accept-encoding')), /^gzip, deflate/);
  await check(unknown);
  await check(await send('/api/track', { ...body, junk: 'z'.repeat(bodies.singleBytesMax) }));
  await check(await send('/api/track', JSON.stringify(body), { 'Content-Type': 'text/plain' }));
  await check(await send('/api/track', '{'));
  for (let i = 0; i < 29; i++) await (await send('/api/track', body)).arrayBuffer();
  await check(await send('/api/track', body));

  const get = async (path: string) => {
    const reply = await fetch(`${sluice.baseUrl}${path}`);
    statuses.push(reply.status);
    await checkAnswer(resolved.paths[path]?.get as Operation, reply);
  };
  await get('/health/live');
  await get('/health/ready');
  await get('/openapi.json');
  assert.deepEqual(statuses, [200, 415, 413, 400, 400, 429, 200, 200, 200]);
});
