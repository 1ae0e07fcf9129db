// An OpenAPI document for the people of one account: its own app_id and account_id stand in the examples, and each operation has a
// command line that can be copied.

/** Of the account that is shown; undefined while there is none. */
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
      const operation = owned(given, own);
      const source = commandLine(method, `${base}${filled(path, own)}`, operation, own);
      return [method, { ...operation, 'x-codeSamples': [{ lang: 'curl', label: 'curl', source }] }];
    });
    return [path, Object.fromEntries(operations)];
  });
  return { ...document, paths: Object.fromEntries(paths) };
}

/** The value with the own app_id in place of that of every example in it. */
function owned<Value>(value: Value, own: Own): Value {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((each) => owned(each, own)) as Value;
  const entries = Object.entries(value).map(([name, held]) => {
    const isExample = name === 'app_id' && typeof held === 'string';
    return [name, isExample ? (own.app_id ?? held) : owned(held, own)];
  });
  return Object.fromEntries(entries) as Value;
}

/** A path with the own ids; what the reader has to fill in stays in braces. */
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

/** For a text in single quotes of a shell. */
function quoted(text: string): string {
  return text.replaceAll("'", String.raw`'\''`);
}

/** What each way to prove who calls takes on the command line. Sessions are for browsers. */
function credentials({ security = [] }: Operation, { app_id = 'APP_ID' }: Own): readonly string[] {
  const ways: Readonly<Record<string, string>> = {
    adminToken: '-H "Authorization: Bearer $ADMIN_TOKEN"',
    apiKey: `-u "${app_id}:$API_KEY"`,
    accessToken: '-H "Authorization: Bearer $ACCESS_TOKEN"',
    segmentKey: `-u "${app_id}:"`,
  };
  // An empty one says that none is needed.
  if (security.some((each) => Object.keys(each).length === 0)) return [];
  const way = security.flatMap((each) => Object.keys(each)).find((name) => name in ways);
  return way === undefined ? [] : [String(ways[way])];
}
