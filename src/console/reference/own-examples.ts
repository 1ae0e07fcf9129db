// Adapts an OpenAPI document to one account: the examples have the account's own app_id and account_id, and each operation has a command
// line to copy.

/** The ids of the account that is shown; undefined if there is none. */
export type Own = { readonly app_id: string | undefined; readonly account_id: string | undefined };

type Body = {
  readonly content: Readonly<
    Record<string, { readonly examples?: Readonly<Record<string, { readonly value?: unknown }>> }>
  >;
};
export type Operation = {
  readonly security?: readonly Readonly<Record<string, unknown>>[];
  readonly requestBody?: Body;
};
export type OpenApi = {
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
};

export function withOwnExamples(document: OpenApi, own: Own): OpenApi & Record<string, unknown> {
  const base = document.servers[0]?.url ?? '';
  const paths = Object.entries(document.paths).map(([path, methods]) => {
    const operations = Object.entries(methods).map(([method, given]) => {
      const operation = withOwnAppId(given, own);
      const source = commandLine(method, `${base}${filled(path, own)}`, operation, own);
      return [method, { ...operation, 'x-codeSamples': [{ lang: 'curl', label: 'curl', source }] }];
    });
    return [path, Object.fromEntries(operations)];
  });
  return { ...document, paths: Object.fromEntries(paths) };
}

/** The value, with the account's own app_id in every example. */
function withOwnAppId<Value>(value: Value, own: Own): Value {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((each) => withOwnAppId(each, own)) as Value;
  const entries = Object.entries(value).map(([name, held]) => {
    const isExample = name === 'app_id' && typeof held === 'string';
    return [name, isExample ? (own.app_id ?? held) : withOwnAppId(held, own)];
  });
  return Object.fromEntries(entries) as Value;
}

/** A path with the account's own ids. What the reader has to fill in stays in braces. */
function filled(path: string, own: Own): string {
  return path.replaceAll(/\{(app_id|account_id)\}/g, (name, id: keyof Own) => own[id] ?? name);
}

function commandLine(method: string, url: string, operation: Operation, own: Own): string {
  const json = operation.requestBody?.content['application/json'];
  const [example] = Object.values(json?.examples ?? {});
  const text = example === undefined ? undefined : JSON.stringify(example.value, null, 2);
  return [
    `curl -X ${method.toUpperCase()} '${url}'`,
    ...credentials(operation, own),
    ...(json === undefined ? [] : [`-H 'Content-Type: application/json'`]),
    ...(json === undefined ? [] : [text === undefined ? '-d @body.json' : `-d '${quoted(text)}'`]),
  ].join(' \\\n  ');
}

/** Escapes a text for single quotes of a shell. */
function quoted(text: string): string {
  return text.replaceAll("'", String.raw`'\''`);
}

/** curl's options for the credentials. Sessions are left out, since they are for browsers. */
function credentials({ security = [] }: Operation, { app_id = 'APP_ID' }: Own): readonly string[] {
  const ways: Readonly<Record<string, string>> = {
    adminToken: '-H "Authorization: Bearer $ADMIN_TOKEN"',
    apiKey: `-u "${app_id}:$API_KEY"`,
    accessToken: '-H "Authorization: Bearer $ACCESS_TOKEN"',
    segmentKey: `-u "${app_id}:"`,
  };
  // An empty entry means that no credentials are needed.
  if (security.some((each) => Object.keys(each).length === 0)) return [];
  const way = security.flatMap((each) => Object.keys(each)).find((name) => name in ways);
  return way === undefined ? [] : [String(ways[way])];
}
