// Generates the types of the library's clients from the OpenAPI documents of the service: the parameters and the answer of each operation,
// and its method and path. build.mjs writes them before it compiles the library; they are not in the repository.

import { adminApiRoutes } from '../src/http/endpoints/admin-api.js';
import { deletionRoutes } from '../src/http/endpoints/deletion.js';
import { accountDeletionRoute } from '../src/http/endpoints/deletion-submission.js';
import { exportPart, exportRoutes } from '../src/http/endpoints/user-export.js';
import { suppressionPart, suppressionRoutes } from '../src/http/endpoints/user-suppression.js';
import { deletionPart } from '../src/http/openapi/deletion.js';
import { type OpenApiPart, openApiDocument } from '../src/http/openapi/document.js';
import type { Route } from '../src/http/protocol/server.js';

type Schema = Readonly<Record<string, unknown>>;
type Parameter = {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly schema: Schema;
};
type Operation = {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Content };
  readonly responses: Readonly<Record<string, { readonly content?: Content }>>;
};
type Content = Readonly<Record<string, { readonly schema: Schema }>>;
export type OpenApiDocument = {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
};

/** The operations of a client, under the name of its types. */
type Client = {
  readonly name: string;
  readonly document: OpenApiDocument;
  readonly has: (path: string, operation: Operation) => boolean;
};

/** The library's generated files by name, from the documents of the service's routes. The routes are only made, not served. */
export function writtenSources(): Readonly<Record<string, string>> {
  const nothing = {} as never;
  const ofDeletion = [...deletionRoutes(nothing), ...suppressionRoutes(nothing), ...exportRoutes(nothing)];
  return operationsSources(
    documentOf([deletionPart, suppressionPart, exportPart], ofDeletion),
    documentOf([], [...adminApiRoutes(nothing), accountDeletionRoute(nothing, nothing)]),
  );
}

/** The document in the form in which clients get it. */
function documentOf(parts: readonly OpenApiPart[], routes: readonly Route[]): OpenApiDocument {
  return JSON.parse(JSON.stringify(openApiDocument('', parts, routes))) as OpenApiDocument;
}

/** The sources of the library's generated files by name. Types are in a separate file, so that no source map contains them. */
export function operationsSources(
  publicDocument: OpenApiDocument,
  adminDocument: OpenApiDocument,
): Readonly<Record<string, string>> {
  const clients: Client[] = [
    {
      name: 'administration',
      document: adminDocument,
      has: (_, { tags }) => tags.includes('Administration'),
    },
    {
      name: 'deletion',
      document: publicDocument,
      has: (path) => path.startsWith('/api/public/v0/') && !path.endsWith('/auth_token'),
    },
  ];
  const named = new Map<string, string>();
  const parts = clients.map((client) => clientSource(client, named));
  const types = [...named].sort().map(([name, type]) => `type ${name} = ${type};`);
  const ofParts = (name: 'types' | 'routes') => parts.map((each) => each[name]);
  const imported = `import type { ${parts.map(({ title }) => title).join(', ')} } from './operations.js';`;
  return {
    'operations.ts': `${[head, ...types, ...ofParts('types')].join('\n\n')}\n`,
    'operation-routes.ts': `${[head, imported, ...ofParts('routes')].join('\n\n')}\n`,
  };
}

const head = `// Made by deploy/client-operations.ts from the OpenAPI documents of the service.`;

function titled(name: string): string {
  return name.replace(/(?:^|_)(\w)/g, (_, first: string) => first.toUpperCase());
}

function clientSource({ name, document, has }: Client, named: Map<string, string>) {
  const found = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, operation]) => {
      const answer = answerOf(operation);
      return answer !== undefined && has(path, operation) ? [{ path, method, operation, answer }] : [];
    }),
  );
  const types = found.map(({ operation, answer }) => {
    const given = paramsOf(operation, document, named);
    return `  /** ${operation.summary} */\n  ${operation.operationId}: { given: ${given}; answer: ${typeOf(answer, document, named)} };`;
  });
  const routes = found.map(
    ({ path, method, operation }) => `  ${operation.operationId}: '${method.toUpperCase()} ${path}',`,
  );
  const title = `${titled(name)}Operations`;
  return {
    title,
    types: `export type ${title} = {\n${types.join('\n')}\n};`,
    routes: `export const ${name}Routes: Readonly<Record<keyof ${title}, string>> = {\n${routes.join('\n')}\n};`,
  };
}

function answerOf({ responses }: Operation): Schema | undefined {
  return (responses['200'] ?? responses['201'])?.content?.['application/json']?.schema;
}

/** The parameters of the path and the query together with the fields of the body. */
function paramsOf(operation: Operation, document: OpenApiDocument, named: Map<string, string>): string {
  const inUrl = (operation.parameters ?? []).filter((each) => each.in === 'path' || each.in === 'query');
  const fields = inUrl.map(
    ({ name, in: where, required, schema }) =>
      `${name}${required === true || where === 'path' ? '' : '?'}: ${typeOf(schema, document, named)}`,
  );
  const body = operation.requestBody?.content['application/json']?.schema;
  const parts = [
    ...(fields.length === 0 ? [] : [`{ ${fields.join('; ')} }`]),
    ...(body === undefined ? [] : [typeOf(body, document, named)]),
  ];
  return parts.length === 0 ? 'object' : parts.join(' & ');
}

function typeOf(schema: Schema, document: OpenApiDocument, named: Map<string, string>): string {
  const of = (inner: unknown) => typeOf(inner as Schema, document, named);
  const { $ref, const: only, enum: values, anyOf, oneOf, allOf, type, items } = schema;
  if (typeof $ref === 'string') {
    const name = $ref.split('/').at(-1) as string;
    if (!named.has(name)) {
      named.set(name, 'unknown');
      named.set(name, of(document.components.schemas[name]));
    }
    return name;
  }
  if (only !== undefined) return JSON.stringify(only);
  if (Array.isArray(values)) return values.map((value) => JSON.stringify(value)).join(' | ');
  const choices = (anyOf ?? oneOf) as readonly Schema[] | undefined;
  if (choices !== undefined && type === undefined)
    return [...new Set(choices.map((each) => part(of(each))))].join(' | ');
  if (Array.isArray(allOf)) return allOf.map((each) => part(of(each))).join(' & ');
  if (Array.isArray(type)) return type.map((each) => of({ ...schema, type: each })).join(' | ');
  if (type === 'array') return `readonly ${items === undefined ? 'unknown' : part(of(items))}[]`;
  if (type === 'object') return objectType(schema, of);
  if (type === 'integer' || type === 'number') return 'number';
  return typeof type === 'string' ? type : 'unknown';
}

function part(text: string): string {
  return /[|&]|^readonly /.test(text) ? `(${text})` : text;
}

function objectType(
  { properties, required = [], additionalProperties, patternProperties }: Schema,
  of: (inner: unknown) => string,
): string {
  const fields = Object.entries((properties ?? {}) as Record<string, Schema>);
  if (fields.length > 0) {
    const listed = required as readonly string[];
    return `{ ${fields.map(([name, inner]) => `${/^\w+$/.test(name) ? name : JSON.stringify(name)}${listed.includes(name) ? '' : '?'}: ${of(inner)}`).join('; ')} }`;
  }
  const [other] = Object.values((patternProperties ?? {}) as Record<string, Schema>);
  const values = other ?? (typeof additionalProperties === 'object' ? additionalProperties : undefined);
  return `Record<string, ${values === undefined || values === null ? 'unknown' : of(values)}>`;
}
