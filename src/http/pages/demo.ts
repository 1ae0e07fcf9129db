// The demo on ADMIN_PORT, with `DEMO=1`: a page with the client library and buttons for its operations, beside its user's events in
// ClickHouse. Since it needs no token, it answers only for environments of the account that the first start creates, only for users whose
// ids the request names, and only to its own page.

import type { HttpRequest } from 'uWebSockets.js';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Arrived, ArrivedQuery } from '../../clickhouse/arrived.js';
import { demo, lengths, userIdMax } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import { snippet } from '../../libraries/client/web/snippet.js';
import type { Log } from '../../log.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import { attendOrRefuse } from '../protocol/failed.js';
import { isOwnHost, isSameOrigin } from '../protocol/same-origin.js';
import type { Handler, Route } from '../protocol/server.js';
import { builtRoutes, pageReply } from './pages.js';

export type DemoOptions = {
  readonly publicBaseUrl: string;
  readonly sdkPath: string;
  readonly collectPath: string;
  /** The address that the server listens on. */
  readonly host: string;
  readonly adminPort: number;
  /** The demo account, with its Main Production environment first; undefined if there is none. */
  readonly account: () => Promise<DemoAccount | undefined>;
  readonly accountOf: (appId: string) => string | undefined;
  readonly readArrived: (query: ArrivedQuery) => Promise<Arrived>;
  /** The folder in which the build puts the page. */
  readonly built: string;
  readonly log: Log;
};

export type DemoAccount = {
  readonly account_id: string;
  readonly environments: readonly { readonly app_id: string }[];
};

/** Short, so that batching takes only a small part of the time until an event can be queried. */
const intervalMs = 500;

export function demoRoutes(options: DemoOptions): Route[] {
  const names = [options.host, new URL(options.publicBaseUrl).hostname];
  const html = readFileSync(join(options.built, 'demo/demo.html'), 'utf8');
  const what = 'a request of the demo failed';
  const failing = { log: options.log, what, otherwise: unavailable, isForCallers: true };
  let queries = 0;
  /** Never changes once the account exists. */
  let accountId: string | undefined;

  /** Refuses callers who may not ask. */
  function guarded(work: (exchange: Exchange) => Promise<void>): Handler {
    return (exchange: Exchange, req: HttpRequest) => {
      const fault = !isOwnHost(req, names)
        ? wrongName
        : !mayAsk(req, options.publicBaseUrl)
          ? foreign
          : undefined;
      exchange.dropBody();
      if (fault !== undefined) return exchange.refuse(fault);
      attendOrRefuse(exchange, failing, work(exchange));
    };
  }

  async function page(exchange: Exchange): Promise<void> {
    const appId = (await options.account())?.environments[0]?.app_id;
    if (appId === undefined) return exchange.refuse(noAccount);
    const { publicBaseUrl: baseUrl, collectPath } = options;
    const address = `${baseUrl}${options.sdkPath}`;
    const script = snippet({ appId, baseUrl, script: address, collectPath, intervalMs });
    const hash = createHash('sha256').update(script).digest('base64');
    const origin = new URL(baseUrl).origin;
    const text = html
      .replace('{{snippet}}', () => script)
      .replaceAll('{{app_id}}', () => appId)
      .replace('{{base_url}}', () => baseUrl);
    pageReply(exchange, text, [
      `script-src 'self' 'sha256-${hash}' ${origin}`,
      `connect-src 'self' ${origin}`,
    ]);
  }

  async function arrived(exchange: Exchange): Promise<void> {
    const query = readQuery(exchange.query);
    if ('code' in query) return exchange.refuse(query);
    accountId ??= (await options.account())?.account_id;
    if (accountId === undefined || options.accountOf(query.appId) !== accountId) {
      return exchange.refuse(unknownAppId);
    }
    if (queries >= demo.queriesMax)
      return exchange.refuse(rejection('overloaded', 'Too many queries at once.'));
    queries += 1;
    try {
      exchange.reply(200, JSON.stringify(await options.readArrived(query)), forThePage);
    } finally {
      queries -= 1;
    }
  }

  const wrongName = rejection(
    'not_found',
    `The demo is at http://127.0.0.1:${options.adminPort}/demo. To open it by a name, set PUBLIC_BASE_URL to that name.`,
  );
  return [
    { method: 'get', path: '/demo', handle: guarded(page) },
    { method: 'get', path: '/demo/arrived', handle: guarded(arrived) },
    ...builtRoutes(options.built, ['demo/demo.js', 'styles/demo.css'], options.log),
  ];
}

/** Any site may link to the page, but only the page itself may read what arrived. */
function mayAsk(req: HttpRequest, publicBaseUrl: string): boolean {
  return req.getUrl() === '/demo' || isSameOrigin(req, publicBaseUrl);
}

const forThePage: Headers = [
  ['Cache-Control', 'no-store'],
  ['X-Content-Type-Options', 'nosniff'],
  ['Cross-Origin-Resource-Policy', 'same-origin'],
];

const unavailable = rejection('overloaded', 'The demo cannot be served now.');
const foreign = rejection('not_found');
const noAccount = rejection('not_found', 'This deployment has no demo account.');
const unknownAppId = rejection(
  'unknown_app_id',
  'No environment of the demo account has this app_id.',
  'app_id',
);

function readQuery(text: string) {
  const parameters = new URLSearchParams(text);
  const [appId, ...others] = parameters.getAll('app_id');
  const userIds = parameters.getAll('user_id');
  const identities = parameters.getAll('identity').filter((identity) => identity !== '');
  if (appId === undefined || others.length > 0) {
    return rejection('missing_field', 'Exactly one app_id must be given.', 'app_id');
  }
  if (userIds.length + identities.length === 0) {
    return rejection('missing_user', 'A user_id or an identity must be given.');
  }
  if (userIds.length > demo.idsMax || identities.length > demo.idsMax) {
    return rejection('too_many_records', `At most ${demo.idsMax} user_ids and as many identities.`);
  }
  if (userIds.some((id) => !/^(0|[1-9]\d{0,15})$/.test(id) || Number(id) > userIdMax)) {
    return rejection('invalid_user_id', undefined, 'user_id');
  }
  if (identities.some((identity) => [...identity].length > lengths.identityMax)) {
    return rejection('too_long', undefined, 'identity');
  }
  return { appId, userIds, identities };
}
