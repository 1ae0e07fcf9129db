// Clients for the service's two APIs for programs, with the types of their OpenAPI documents: the administration, with a program's key, and
// the deletion API, with an account's API key. Each operation is a method named by its operation id.

import { type Calls, createCalls, createTokens } from './calls.js';
import { producerLimits as limits } from './limits.js';
import { administrationRoutes, deletionRoutes } from './operation-routes.js';
import type { AdministrationOperations, DeletionOperations } from './operations.js';
import { parseObject } from './records.js';
import { type Call, createTransport } from './transport.js';

type Operations = Readonly<Record<string, { readonly given: object; readonly answer: unknown }>>;

/** Each method takes the parameters of the path and query and the fields of the body in one object. It rejects with SluiceError. */
export type Api<Of extends Operations> = {
  readonly [Id in keyof Of]: (given: Of[Id]['given'], options?: ApiCallOptions) => Promise<Of[Id]['answer']>;
} & {
  /** Ends running requests, and the connections. */
  readonly close: () => void;
};
export type Administration = Api<AdministrationOperations>;
export type DeletionApi = Api<DeletionOperations>;

export type ApiCallOptions = { readonly signal?: AbortSignal | undefined };

type Address = {
  /** Without a slash at the end. */
  readonly baseUrl: string;
  /** Milliseconds for one attempt; default 30,000. */
  readonly requestMs?: number;
};

/** The administration. `baseUrl`: the address of ADMIN_PORT; `token`: a program's key, or ADMIN_TOKEN. */
export function createAdministration(options: Address & { readonly token: string }): Administration {
  return createApi<AdministrationOperations>(administrationRoutes, options, (_, send) =>
    send(`Bearer ${options.token}`),
  );
}

/** The deletion API. `appId`: the app_id of the environment Main Production. */
export function createDeletionApi(
  options: Address & { readonly appId: string; readonly apiKey: string },
): DeletionApi {
  return createApi<DeletionOperations>(deletionRoutes, options, createTokens(options.appId, options.apiKey));
}

type Sent = Pick<Call, 'method' | 'path'> & { readonly text?: string };

function createApi<Of extends Operations>(
  routes: Readonly<Record<keyof Of, string>>,
  { baseUrl, requestMs = limits.requestMs }: Address,
  authorized: ReturnType<typeof createTokens>,
): Api<Of> {
  const transport = createTransport({
    baseUrl: baseUrl.replace(/\/+$/, ''),
    requestMs,
    connectionsMax: limits.parallelRequests,
    keepAlive: false,
  });

  async function give(route: string, given: object, { signal }: ApiCallOptions = {}): Promise<unknown> {
    const { ask, fail } = createCalls({ gzip: false }, transport, signal);
    const calls: Calls = {
      ask: (method, path, authorization, text) =>
        ask(method, path, authorization, text, 'if_nothing_was_done'),
      fail,
    };
    const { method, path, text } = callOf(route, given);
    const answer = await authorized(calls, (authorization) => calls.ask(method, path, authorization, text));
    const content = parseObject(answer.text);
    if ((answer.status !== 200 && answer.status !== 201) || content === undefined) throw fail(answer);
    return content;
  }

  const methods = Object.entries<string>(routes).map(([id, route]) => [
    id,
    (given: object, options?: ApiCallOptions) => give(route, given, options),
  ]);
  return { ...Object.fromEntries(methods), close: transport.close } as Api<Of>;
}

/** The request of a call. What is not in the path goes into the body if the operation has one, otherwise into the query. */
function callOf(route: string, given: object): Sent {
  const [method = '', template = ''] = route.split(' ');
  const fields = new Map(Object.entries(given).filter(([, value]) => value !== undefined));
  const path = template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = fields.get(name);
    if (value === undefined) throw new TypeError(`${name} is missing`);
    fields.delete(name);
    // '.' and '..' would change the path of a URL.
    if (/^\.{0,2}$/.test(String(value))) throw new TypeError(`${name} must be an id`);
    return encodeURIComponent(String(value));
  });
  if (method === 'GET' || method === 'DELETE') {
    const query = new URLSearchParams(
      [...fields].map(([name, value]): [string, string] => [name, String(value)]),
    );
    return { method: method as Call['method'], path: fields.size === 0 ? path : `${path}?${query}` };
  }
  return { method: method as Call['method'], path, text: JSON.stringify(Object.fromEntries(fields)) };
}
