// Compares every answer that a test gets from the deletion API, and answers of ingestion, receipts and health, with the OpenAPI document,
// so that no answer goes undocumented.

import assert from 'node:assert/strict';
import { Compile } from '../../src/contract/typebox.js';
import { type CollectOptions, collectRoutes } from '../../src/http/endpoints/collect.js';
import { deletionRoutes } from '../../src/http/endpoints/deletion.js';
import { healthPart, healthRoutes } from '../../src/http/endpoints/health.js';
import { ingestRoutes } from '../../src/http/endpoints/ingest.js';
import { type ReceiptsApiOptions, receiptRoutes, receiptsPart } from '../../src/http/endpoints/receipts.js';
import type { UserRequestOptions } from '../../src/http/endpoints/token-caller.js';
import { exportPart, exportRoutes } from '../../src/http/endpoints/user-export.js';
import { suppressionPart, suppressionRoutes } from '../../src/http/endpoints/user-suppression.js';
import { collectPart } from '../../src/http/openapi/collect.js';
import { deletionPart } from '../../src/http/openapi/deletion.js';
import { openApiDocument } from '../../src/http/openapi/document.js';
import { ingestPart } from '../../src/http/openapi/ingest.js';

type Json = Readonly<Record<string, unknown>>;
type Answer = {
  readonly headers?: Readonly<Record<string, { readonly required?: boolean }>>;
  readonly content?: Readonly<Record<string, { readonly schema: object }>>;
};
type Operation = { readonly responses: Readonly<Record<string, Answer>> };
type Reply = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
};

const document = openApiDocument(
  '',
  [ingestPart, collectPart, deletionPart, suppressionPart, exportPart, receiptsPart, healthPart],
  [
    ...ingestRoutes({} as Parameters<typeof ingestRoutes>[0]),
    ...collectRoutes({ paths: ['/api/collect'] } as unknown as CollectOptions),
    ...healthRoutes(() => ({ ready: true, missing: [] })),
    ...deletionRoutes({} as UserRequestOptions),
    ...suppressionRoutes({} as UserRequestOptions),
    ...exportRoutes({} as UserRequestOptions),
    ...receiptRoutes({} as ReceiptsApiOptions),
  ],
);
const operations = Object.entries(
  document.paths as Readonly<Record<string, Readonly<Record<string, Operation>>>>,
).flatMap(([path, its]) =>
  Object.entries(its).map(([method, operation]) => ({
    method: method.toUpperCase(),
    path: new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/?]+')}(?:\\?|$)`),
    operation,
  })),
);

/** How many lines of an export are checked; the others of a long one are like them. */
const linesMax = 100;

/** Throws if one of these APIs answers otherwise than documented, or answers a request that it does not document. Ignores administration. */
export function assertDocumented(method: string, path: string, reply: Reply): void {
  const found = operations.find((each) => each.method === method && each.path.test(path));
  const what = `${method} ${path.slice(0, 100)}: ${reply.status}`;
  if (path.startsWith('/admin/')) return;
  if (found === undefined) return assert.ok([404, 405].includes(reply.status), `${what} is not documented`);
  const answer = found.operation.responses[reply.status];
  assert.ok(answer, `${what} is not documented: ${reply.text.slice(0, 300)}`);
  for (const [name, { required }] of Object.entries(answer.headers ?? {}))
    if (required) assert.ok(reply.headers[name.toLowerCase()], `${what} has no ${name}`);
  const type = String(reply.headers['content-type']);
  const schema = answer.content?.[type]?.schema;
  assert.ok(schema, `${what} is not documented as ${type}`);
  const documents = type === 'application/x-ndjson' ? linesOf(reply.text) : [reply.text];
  for (const text of documents) assertHolds(schema, JSON.parse(text), what);
}

export function assertDocumentedCall(body: string): void {
  const { post } = document.webhooks.deletionComplete as { post: { requestBody: Answer } };
  assertHolds(post.requestBody.content?.['application/json']?.schema as object, JSON.parse(body), 'a call');
}

/** The first lines; the last one may be cut off. */
function linesOf(text: string): string[] {
  return text.split('\n').slice(0, -1).slice(0, linesMax);
}

const compiled = new Map<object, ReturnType<typeof Compile>>();

function assertHolds(schema: object, value: unknown, what: string): void {
  let its = compiled.get(schema);
  if (its === undefined) {
    its = Compile(resolved(schema));
    compiled.set(schema, its);
  }
  if (its.Check(value)) return;
  assert.fail(
    `${what}: ${JSON.stringify(its.Errors(value).slice(0, 3))} of ${JSON.stringify(value).slice(0, 500)}`,
  );
}

/**
 * The schema with its references resolved, and with fields banned that it does not name: clients ignore what they do not know, but the
 * service must document all that it sends.
 */
function resolved(schema: unknown): object {
  if (Array.isArray(schema)) return schema.map((each) => (isObject(each) ? resolved(each) : each));
  const { $ref: name, ...rest } = schema as Json;
  if (typeof name === 'string') {
    const named = document.components.schemas[name.replace('#/components/schemas/', '')];
    return resolved(named);
  }
  const inner = Object.fromEntries(
    Object.entries(rest).map(([key, value]) => [key, isObject(value) ? resolved(value) : value]),
  );
  const isClosed = rest.type === 'object' && rest.additionalProperties === undefined;
  return isClosed ? { ...inner, additionalProperties: false } : inner;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
