// The deletion API: its routes, tokens, and the key that certificates are checked with.

import { publicPartOf, readSigningKey } from '../../accounts/signing-key.js';
import { mintToken } from '../../accounts/tokens.js';
import { deletions, limitedRetrySeconds } from '../../contract/limits.js';
import { deletionTag } from '../openapi/deletion.js';
import { answered, operation } from '../openapi/document.js';
import { readBasic } from '../protocol/authorization.js';
import { networkOf } from '../protocol/caller-address.js';
import type { Exchange } from '../protocol/exchange.js';
import type { Route } from '../protocol/server.js';
import { deletionStatusRoutes } from './deletion-status.js';
import { deletionSubmissionRoute } from './deletion-submission.js';
import {
  answerOrFail,
  credentialsGuard,
  publicApi,
  refuse,
  type UserRequestOptions,
  wrongApiKey,
} from './token-caller.js';

export function deletionRoutes(options: UserRequestOptions): Route[] {
  return [
    {
      method: 'post',
      path: `${publicApi}/auth_token`,
      handle: (exchange) => token(options, exchange),
      doc: operation(
        {
          id: 'createToken',
          tag: deletionTag,
          summary: 'Get an access token',
          description: `Valid for ${deletions.tokenMsMax / 60_000} minutes. It ends earlier only when the API key is revoked, replaced or expired, or when the environment is no longer the main one. After twenty failures a minute from one address further failures are answered 429; a correct key always gets its token. A key may have ${deletions.liveTokensPerKeyMax} live tokens, and an account ${deletions.tokensPerAccountMax}; beyond that a new one is refused until one of them ends.`,
          security: [{ apiKey: [] }],
          answers: { 200: answered('The token.', 'Token') },
          refuses: ['unknown'],
        },
        credentialsGuard,
      ),
    },
    deletionSubmissionRoute(options),
    ...deletionStatusRoutes(options),
    {
      method: 'get',
      path: `${publicApi}/signing_key`,
      handle: (exchange) => signingKey(options, exchange),
      doc: operation({
        id: 'readSigningKey',
        tag: deletionTag,
        summary: 'The public key of certificates',
        answers: { 200: answered('The key.', 'SigningKey') },
        refuses: ['overloaded', 'unknown'],
      }),
    },
  ];
}

function token(options: UserRequestOptions, exchange: Exchange): void {
  exchange.dropBody();
  const credentials = readBasic(exchange.framing.authorization);
  if (credentials === undefined) return wrongApiKey(exchange);
  const network = networkOf(exchange.address);
  answerOrFail(exchange, options, async () => {
    const minted = await mintToken(options.redis, credentials.name, credentials.password, network);
    if (minted === 'wrong') return wrongApiKey(exchange);
    if (minted === 'limited')
      return refuse(exchange, 'rate_limited', 'Too many failed requests.', limitedRetrySeconds.tokenFailures);
    if ('waitMs' in minted) {
      return refuse(
        exchange,
        'rate_limited',
        'The API key or its account has too many live tokens.',
        minted.waitMs / 1000,
      );
    }
    options.crash('token_issued');
    // `auth_token` is the name in an earlier form of the interface.
    const body = { access_token: minted.accessToken, auth_token: minted.accessToken };
    exchange.reply(200, JSON.stringify(body), [['Cache-Control', 'no-store']]);
  });
}

/** Open to everybody, so that anyone who is shown a certificate can check it. */
function signingKey(options: UserRequestOptions, exchange: Exchange): void {
  exchange.dropBody();
  answerOrFail(exchange, options, async () => {
    const key = await readSigningKey(options.redis, options.clickhouse);
    exchange.reply(200, JSON.stringify(publicPartOf(key)));
  });
}
