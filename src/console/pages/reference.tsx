// The API reference: the OpenAPI documents of this deployment, with the account's app_id in the examples. It is drawn here,
// since the known viewers need styles and scripts in the page, which its policy forbids.

import { useEffect, useState } from 'preact/hooks';
import type { Account } from '../api.js';
import { Choice, Copy, Field, Problem } from '../parts/parts.js';

type Schema = Readonly<Record<string, unknown>>;
type Content = Readonly<
  Record<
    string,
    {
      readonly schema?: Schema;
      readonly examples?: Readonly<Record<string, { readonly summary?: string; readonly value?: unknown }>>;
    }
  >
>;
type Operation = {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description?: string;
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
    readonly description?: string;
  }[];
  readonly requestBody?: { readonly content: Content };
  readonly responses: Readonly<Record<string, { readonly description: string; readonly content?: Content }>>;
};
type Document = {
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas?: Readonly<Record<string, Schema>> };
};

const documents = [
  ['/openapi.json', 'Collecting and deleting'],
  ['/admin/v1/openapi.json', 'Administration'],
] as const;

export function Reference({ account }: { readonly account: Account | undefined }) {
  const [path, setPath] = useState<string>(documents[0][0]);
  const [document, setDocument] = useState<Document | undefined>(undefined);
  const [fault, setFault] = useState('');
  const [wanted, setWanted] = useState('');
  useEffect(() => {
    let isWanted = true;
    setDocument(undefined);
    fetch(path)
      .then((answer) => answer.json() as Promise<Document>)
      .then(
        (found) => isWanted && setDocument(found),
        () => isWanted && setFault('The service does not answer.'),
      );
    return () => {
      isWanted = false;
    };
  }, [path]);
  const appId = account?.environments.find(({ main }) => main)?.app_id;
  const found = Object.entries(document?.paths ?? {}).flatMap(([at, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ at, method, operation })),
  );
  const shown = found.filter(({ at, operation }) =>
    `${at} ${operation.summary}`.toLowerCase().includes(wanted.toLowerCase()),
  );
  const tags = [...new Set(shown.map(({ operation }) => operation.tags[0] ?? ''))];
  return (
    <>
      <h1>API</h1>
      <section class="card">
        <div class="line wide">
          <Choice label="Document" value={path} set={setPath} options={documents} />
          <Field label="Find an operation" value={wanted} set={setWanted} />
        </div>
        <p class="muted">
          {document?.servers[0] !== undefined && (
            <>
              Base URL: <code>{document.servers[0].url}</code>.{' '}
            </>
          )}
          For tools: <a href={path}>{path}</a>
        </p>
        <Problem text={fault} />
      </section>
      {document !== undefined && shown.length === 0 && <p class="empty">No operation has these words.</p>}
      {document !== undefined &&
        tags.map((tag) => (
          <section key={tag} class="card">
            <h2>{tag}</h2>
            {shown
              .filter(({ operation }) => operation.tags[0] === tag)
              .map(({ at, method, operation }) => (
                <details key={operation.operationId} class="operation">
                  <summary>
                    <span class="chip accent">{method.toUpperCase()}</span> <code>{at}</code>{' '}
                    {operation.summary}
                  </summary>
                  <OperationDetail
                    operation={operation}
                    method={method}
                    url={`${document.servers[0]?.url ?? ''}${at}`}
                    document={document}
                    appId={appId}
                  />
                </details>
              ))}
          </section>
        ))}
    </>
  );
}

function OperationDetail(props: {
  readonly operation: Operation;
  readonly method: string;
  readonly url: string;
  readonly document: Document;
  readonly appId: string | undefined;
}) {
  const { operation, method, url, document, appId } = props;
  const content = operation.requestBody?.content['application/json'];
  const example = Object.values(content?.examples ?? {})[0]?.value;
  const body = example === undefined ? undefined : JSON.stringify(withAppId(example, appId), null, 2);
  const command = [
    `curl -X ${method.toUpperCase()} '${url}'`,
    ...(body === undefined
      ? []
      : [`-H 'Content-Type: application/json'`, `-d '${body.replaceAll("'", "'\\''")}'`]),
  ].join(' \\\n  ');
  return (
    <>
      {operation.description !== undefined && <p class="prose">{operation.description}</p>}
      {(operation.parameters ?? []).length > 0 && (
        <>
          <h3>Parameters</h3>
          <ul>
            {operation.parameters?.map((each) => (
              <li key={each.name}>
                <code>{each.name}</code> ({each.in}
                {each.required === true ? ', needed' : ''}) {each.description}
              </li>
            ))}
          </ul>
        </>
      )}
      {content?.schema !== undefined && (
        <>
          <h3>Body</h3>
          <Fields schema={content.schema} document={document} depth={0} />
        </>
      )}
      <h3>
        Example <Copy text={command} what={`the example of ${operation.summary}`} />
      </h3>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls sideways has to be reached by the keyboard */}
      <pre tabIndex={0}>{command}</pre>
      <h3>Answers</h3>
      <ul>
        {Object.entries(operation.responses).map(([status, { description }]) => (
          <li key={status}>
            <span class={`chip ${status.startsWith('2') ? 'good' : 'warn'}`}>{status}</span>{' '}
            <span class="prose">{description}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

const depthMax = 4;

/** The fields of a schema, with those inside. */
function Fields({
  schema: given,
  document,
  depth,
}: {
  readonly schema: Schema;
  readonly document: Document;
  readonly depth: number;
}) {
  const schema = resolved(given, document);
  const variants = (schema.anyOf ?? schema.oneOf) as readonly Schema[] | undefined;
  if (depth > depthMax) return null;
  if (variants !== undefined) {
    return (
      <>
        <p>One of:</p>
        <ul>
          {variants.map((variant) => (
            <li key={JSON.stringify(variant)}>
              <Fields schema={variant} document={document} depth={depth + 1} />
            </li>
          ))}
        </ul>
      </>
    );
  }
  if (schema.items !== undefined)
    return <Fields schema={schema.items as Schema} document={document} depth={depth + 1} />;
  const properties = Object.entries((schema.properties ?? {}) as Readonly<Record<string, Schema>>);
  const required = (schema.required ?? []) as readonly string[];
  if (properties.length === 0) return <span class="muted">{typeOf(schema)}</span>;
  return (
    <ul class="fields">
      {properties.map(([name, property]) => {
        const field = resolved(property, document);
        return (
          <li key={name}>
            <code>{name}</code> <span class="muted">{typeOf(field)}</span>{' '}
            {required.includes(name) && <span class="chip">needed</span>} {String(field.description ?? '')}
            {(field.properties !== undefined || field.items !== undefined) && (
              <Fields schema={field} document={document} depth={depth + 1} />
            )}
          </li>
        );
      })}
    </ul>
  );
}

function resolved(schema: Schema, { components }: Document): Schema {
  const name = typeof schema.$ref === 'string' ? schema.$ref.split('/').at(-1) : undefined;
  return name === undefined ? schema : (components.schemas?.[name] ?? {});
}

function typeOf({ type, enum: values, const: only }: Schema): string {
  if (Array.isArray(values)) return values.join(' | ');
  if (only !== undefined) return JSON.stringify(only);
  return Array.isArray(type) ? type.join(' | ') : String(type ?? '');
}

/** An example with the account's own app_id in it. */
function withAppId(value: unknown, appId: string | undefined): unknown {
  if (appId === undefined || typeof value !== 'object' || value === null || !('app_id' in value))
    return value;
  return { ...value, app_id: appId };
}
