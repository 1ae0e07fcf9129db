// GET /openapi.json: the interface as an OpenAPI 3.1 document. It is assembled at the start from the documents of the routes, and from one
// part per subject with its tag and schemas. The schemas are those of `contract/`, which also check the requests. The codes of refusals
// come from `contract/`'s table, and are named by the guard or endpoint that refuses. This file holds what all parts share.
// @see https://spec.openapis.org/oas/v3.1.1.html

import { errorSchema } from '../../contract/answers.js';
import {
  counts,
  type LimitName,
  lengths,
  overloadedRetrySeconds,
  rateLimits,
} from '../../contract/limits.js';
import { type Outcome, type OutcomeCode, outcomes } from '../../contract/outcomes.js';
import { type Guard, ref } from '../protocol/guard.js';
import type { Route } from '../protocol/server.js';

export { ref };

/** What one subject adds to the document. */
export type OpenApiPart = {
  /** The tag that all its operations carry. */
  readonly tag: { readonly name: string; readonly description: string };
  /** Requests that the service sends to others, by name. */
  readonly webhooks?: Readonly<Record<string, object>>;
  /** Components by name, to be referred to by `ref`. */
  readonly schemas?: Readonly<Record<string, object>>;
  readonly securitySchemes?: Readonly<Record<string, object>>;
};

/** The rules for properties that their schema does not express. */
export function propertyRules(reserved: ReadonlySet<string>) {
  return {
    maxProperties: counts.propertiesMax,
    propertyNames: { maxLength: lengths.propertyKeyMax, not: { enum: [...reserved] } },
  };
}

/** A limit as `30 requests per 30 seconds`, or without `what` as `30 per 30 seconds`. */
export function limitText(name: LimitName, what = ''): string {
  const { max, windowMs } = rateLimits[name];
  return `${`${max} ${what}`.trim()} per ${windowMs / 1000} seconds`;
}

export type Example = {
  readonly summary: string;
  readonly value: unknown;
  /** For the example of an answer: the body of a request that gets it. */
  readonly request?: unknown;
};

export type Examples = Readonly<Record<string, Example>>;

export function json(schema: object, examples: Examples = {}) {
  const shown = Object.entries(examples).map(([name, { request, ...example }]) => [
    name,
    request === undefined ? example : { ...example, 'x-request': request },
  ]);
  return {
    'application/json': { schema, ...(shown.length === 0 ? {} : { examples: Object.fromEntries(shown) }) },
  };
}

/** An answer in JSON. `schema`: its name in the document, or the schema itself. */
export function answered(description: string, schema: string | object, headers?: object) {
  const content = json(typeof schema === 'string' ? ref(schema) : schema);
  return { description, ...(headers && { headers }), content };
}

export type RefusalOptions = {
  /** Schemas to use instead of Error, by status. */
  readonly schemas?: Readonly<Record<number, object>>;
  /** Headers in addition to the ones that a status always has, by status. */
  readonly headers?: Readonly<Record<number, object>>;
  readonly examples?: Readonly<Record<number, Examples>>;
};

export const ignoredHeader = {
  'Sluice-Ignored': {
    description:
      'The fields of the request that the service does not know and ignores: at most 10 names, percent-encoded, each cut after 40 characters; `...` if there are more. Absent if there are none.',
    schema: { type: 'string' },
    example: 'propertys, nmae',
  },
};

export const repeatsHeader = {
  'Sluice-Repeats': {
    description: 'How many of the records were stored before, under the same keys. Absent if none was.',
    schema: { type: 'integer', minimum: 1 },
    example: 1,
  },
};

/** The answers of an operation that refuses requests for these reasons, by status. */
export function refusals(expected: readonly OutcomeCode[], options: RefusalOptions) {
  const codes = [...new Set<OutcomeCode>([...expected, 'headers_too_large', 'internal_error'])];
  const responses: Record<string, object> = {};
  for (const status of new Set(codes.map((code) => outcomes[code].status))) {
    const ofStatus = codes.filter((code) => outcomes[code].status === status);
    const schema = {
      allOf: [options.schemas?.[status] ?? ref('Error')],
      properties: { err: { properties: { code: { enum: ofStatus } } } },
    };
    responses[status] = {
      description: ofStatus.map((code) => `- \`${code}\`: ${outcomes[code].meaning}`).join('\n'),
      headers: { ...headersOf(status), ...options.headers?.[status] },
      content: json(schema, options.examples?.[status]),
    };
  }
  return responses;
}

/** The documentation of a route, without that of its guards. */
export type Doc = {
  readonly id: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  /** Its version, such as `1.0`, if it has one of its own. */
  readonly version?: string;
  readonly security?: readonly object[];
  readonly parameters?: readonly object[];
  /** The content of its body, by type. */
  readonly body?: object;
  readonly isBodyOptional?: boolean;
  readonly answers: Readonly<Record<string | number, object>>;
  /** The reasons for which it refuses requests that its guards let through. */
  readonly refuses?: readonly OutcomeCode[];
  readonly refusal?: RefusalOptions;
};

export function operation(doc: Doc, ...guards: readonly Guard[]): object {
  const { id, tag, summary, description, version, body, answers, refuses = [], refusal = {} } = doc;
  const codes = [...guards.flatMap((guard) => guard.refuses), ...refuses];
  const given = [...guards.flatMap(({ parameters = [] }) => parameters), ...(doc.parameters ?? [])];
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(description !== undefined && { description }),
    ...(version !== undefined && { 'x-version': version }),
    security: doc.security ?? guards.find(({ security }) => security !== undefined)?.security ?? [{}],
    ...(given.length > 0 && { parameters: given }),
    ...(body !== undefined && { requestBody: { required: doc.isBodyOptional !== true, content: body } }),
    responses: {
      ...answers,
      ...(codes.length > 0 &&
        refusals(codes, {
          examples: refusal.examples ?? {},
          schemas: Object.assign({}, ...guards.map(({ schemas }) => schemas), refusal.schemas),
          headers: Object.assign({}, ...guards.map(({ headers }) => headers), refusal.headers),
        })),
    },
  };
}

export function documents(tag: string, ...guards: readonly Guard[]) {
  return (doc: Omit<Doc, 'tag'>): object => operation({ ...doc, tag }, ...guards);
}

export function inPath(name: string, example?: string): object {
  return { name, in: 'path', required: true, schema: { type: 'string' }, ...(example && { example }) };
}

/** The whole document. `baseUrl` is the address of the public port, without a slash at the end. */
export function openApiDocument(
  baseUrl: string,
  parts: readonly OpenApiPart[],
  routes: readonly Documented[] = [],
) {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sluice',
      version: '1.0',
      summary: 'Event collection and user deletion.',
      description: about,
    },
    servers: [{ url: baseUrl, description: 'The data centre that served this document.' }],
    tags: [...parts.map(({ tag }) => tag), ownTag],
    paths: pathsOf([...routes, ownRoute]),
    webhooks: merged(parts.map(({ webhooks }) => webhooks ?? {})),
    components: {
      schemas: merged([sharedSchemas, ...parts.map(({ schemas }) => schemas ?? {})]),
      securitySchemes: merged(parts.map(({ securitySchemes }) => securitySchemes ?? {})),
    },
  };
}

type Documented = Pick<Route, 'method' | 'path' | 'doc'>;

function pathsOf(routes: readonly Documented[]): Record<string, object> {
  const paths: Record<string, Record<string, object>> = {};
  for (const { method, path, doc } of routes) {
    if (doc === undefined) continue;
    const name = path.replaceAll(/:(\w+)/g, '{$1}');
    paths[name] = { ...paths[name], [method === 'del' ? 'delete' : method]: doc };
  }
  return paths;
}

/** Serves the document of these routes. The document is made once. */
export function openApiRoute(
  baseUrl: string,
  parts: readonly OpenApiPart[],
  routes: readonly Documented[],
  path = '/openapi.json',
): Route {
  const text = Buffer.from(JSON.stringify(openApiDocument(baseUrl, parts, routes)));
  return {
    method: 'get',
    path,
    handle: (exchange) => exchange.dropBody().reply(200, text),
  };
}

const about = `Collects custom events and properties of users, and deletes users on request.

**Environments.** Every record belongs to one environment, addressed by its \`app_id\`. Each data centre has its own base URL, data, app_ids and keys, which are unknown in any other.

**Naming.** Use broad event names and tell variants apart by properties: one event \`Error\` with a property \`message\`, not one event per message.

**Identities.** Send e-mail addresses in lower case: the service never changes the case of an identity. Never send a generic word such as \`null\`, \`undefined\`, \`user\` or \`anonymous\` as an identity.

**Lengths** are in Unicode code points. The schemas describe environments with strict validation, the default; a lenient environment also takes common deviations, such as booleans, and mends them.

**Errors.** A refused request is answered with \`err\`: a \`code\` of the schema ErrorCode, which also says what each code means and whether to send the request again, and a \`message\` for people. A path that does not exist is answered 404 \`not_found\`, a wrong method 405 \`method_not_allowed\` with the right ones in the header Allow.

**Versioning.** \`/api/track\` is version 1.0 and has no version in its path; paths with a version keep to it. What is valid stays valid: unknown fields of a request are ignored, and answers may get more fields and codes, which clients should ignore.`;

const ownTag = { name: 'Description', description: 'This document.' };
const ownRoute: Documented = {
  method: 'get',
  path: '/openapi.json',
  doc: operation({
    id: 'openapi',
    tag: ownTag.name,
    summary: 'This document',
    answers: { 200: answered('An OpenAPI 3.1 document.', { type: 'object' }) },
  }),
};

const codeTable = Object.entries(outcomes as Readonly<Record<string, Outcome>>)
  .map(([code, { status, retry, meaning }]) => `| \`${code}\` | ${status} | ${retry} | ${meaning} |`)
  .join('\n');

const sharedSchemas = {
  Error: {
    ...errorSchema,
    description: 'A refused request.',
    properties: {
      err: {
        ...errorSchema.properties.err,
        properties: { ...errorSchema.properties.err.properties, code: ref('ErrorCode') },
      },
    },
  },
  ErrorCode: {
    ...errorSchema.properties.err.properties.code,
    description: `What is wrong. Retry: \`later\` = the same request can succeed after waiting; \`never\` = it cannot.\n\n| Code | Status | Retry | Meaning |\n|---|---|---|---|\n${codeTable}`,
  },
};

function headersOf(status: number): object {
  if (status === 415)
    return {
      'Accept-Encoding': {
        description: 'The accepted codings, if the coding of the body is not one of them.',
        schema: { type: 'string' },
        example: 'gzip, deflate',
      },
    };
  if (status !== 429 && status < 500) return {};
  return {
    'Retry-After': {
      required: true,
      description:
        status === 429
          ? 'Whole seconds after which the request fits its limit, if nothing else is sent meanwhile.'
          : 'Whole seconds to wait before the next attempt.',
      schema: { type: 'integer', minimum: 1 },
      example: status === 429 ? 12 : overloadedRetrySeconds,
    },
  };
}

/** The entries of all parts. Throws if two parts have an entry of the same name, since they would contradict each other. */
function merged(all: readonly Readonly<Record<string, object>>[]): Record<string, object> {
  const result: Record<string, object> = {};
  for (const [name, value] of all.flatMap(Object.entries)) {
    if (Object.hasOwn(result, name)) throw new Error(`two parts of the OpenAPI document define ${name}`);
    result[name] = value;
  }
  return result;
}
