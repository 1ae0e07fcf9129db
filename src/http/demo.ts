// The demo on ADMIN_PORT, where the deployment has one (`DEMO=1`): a page with the client library and buttons
// for its operations, and what arrived of its user in ClickHouse. It needs no token, so it answers only for
// environments of the account that the first start creates, only for users whose ids are named, and only to
// its own page.

import type { HttpRequest } from 'uWebSockets.js';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Arrived, ArrivedQuery } from '../clickhouse/arrived.js';
import { snippet } from '../client/web/snippet.js';
import { lengths, userIdMax } from '../contract/limits.js';
import { outcomes, rejection } from '../contract/outcomes.js';
import { describeError, type Log } from '../log.js';
import type { Exchange, Headers } from './exchange.js';
import { isOwnFault } from './fault.js';
import { fileRoute, pageReply, readPage, scriptType } from './pages.js';
import { isOwnHost, isSameOrigin } from './same-origin.js';
import { type Handler, type Route, withoutBody } from './server.js';

export type DemoOptions = {
  readonly publicBaseUrl: string;
  /** Address that the server listens on. */
  readonly host: string;
  readonly adminPort: number;
  /** The demo account, its Main Production environment first; undefined when there is none. */
  readonly account: () => Promise<DemoAccount | undefined>;
  /** The account of an environment. */
  readonly accountOf: (appId: string) => string | undefined;
  readonly readArrived: (query: ArrivedQuery) => Promise<Arrived>;
  /** The client library as the page's phone has it: an ES module in one file. */
  readonly phoneScript: string;
  readonly log: Log;
};

export type DemoAccount = {
  readonly account_id: string;
  readonly environments: readonly { readonly app_id: string }[];
};

/** Ids that one request may name. */
const idsMax = 10;
/** Queries at a time; each page asks again a second later anyway. */
const queriesMax = 4;
/** Soon, so that the time until an event can be queried is not mostly waiting. */
const intervalMs = 500;

export function demoRoutes(options: DemoOptions): Route[] {
  const names = [options.host, new URL(options.publicBaseUrl).hostname];
  const html = readPage('demo.html');
  let queries = 0;
  /** Never changes once there is one. */
  let accountId: string | undefined;

  /** Answers who may not ask; else hands on an exchange and the query. */
  function guarded(work: (exchange: Exchange) => Promise<void>): Handler {
    return (exchange: Exchange, req: HttpRequest) => {
      const fault = !isOwnHost(req, names) ? wrongName : !mayAsk(req) ? foreign : undefined;
      withoutBody(exchange);
      if (fault !== undefined) return exchange.refuse(fault);
      const answered = work(exchange).catch((error: unknown) => {
        if (isOwnFault(error)) throw error;
        options.log.warn({ error: describeError(error) }, 'a request of the demo failed');
        exchange.refuse(rejection('overloaded', 'The demo cannot be served now.'));
      });
      exchange.attend(answered);
    };
  }

  async function page(exchange: Exchange): Promise<void> {
    const appId = (await options.account())?.environments[0]?.app_id;
    if (appId === undefined) return exchange.refuse(noAccount);
    const { publicBaseUrl: baseUrl } = options;
    const script = snippet({ appId, baseUrl, intervalMs });
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
    if (queries >= queriesMax) return exchange.refuse(rejection('overloaded', 'Too many ask at once.'));
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
    fileRoute('/demo/sluice-ios.js', readFileSync(options.phoneScript, 'utf8'), scriptType),
  ];
}

/** A link may lead to the page from anywhere; what arrived is for the page alone. */
function mayAsk(req: HttpRequest): boolean {
  return req.getUrl() === '/demo' || isSameOrigin(req);
}

const forThePage: Headers = [
  ['Cache-Control', 'no-store'],
  ['X-Content-Type-Options', 'nosniff'],
  ['Cross-Origin-Resource-Policy', 'same-origin'],
];

const foreign = rejection('not_found', outcomes.not_found.meaning);
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
    return rejection('missing_field', 'Exactly one app_id is needed.', 'app_id');
  }
  if (userIds.length + identities.length === 0) {
    return rejection('missing_user', 'A user_id or an identity is needed.');
  }
  if (userIds.length > idsMax || identities.length > idsMax) {
    return rejection('too_many_records', `At most ${idsMax} of each.`);
  }
  if (userIds.some((id) => !/^(0|[1-9]\d{0,15})$/.test(id) || Number(id) > userIdMax)) {
    return rejection('invalid_user_id', outcomes.invalid_user_id.meaning, 'user_id');
  }
  if (identities.some((identity) => [...identity].length > lengths.identityMax)) {
    return rejection('too_long', outcomes.too_long.meaning, 'identity');
  }
  return { appId, userIds, identities };
}
