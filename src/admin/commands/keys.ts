// Commands: API keys and write keys of environments.

import {
  createApiKey,
  listApiKeys,
  parseOverlap,
  revokeApiKey,
  rotateApiKey,
  showApiKey,
} from '../../accounts/api-keys.js';
import { createWriteKey, listWriteKeys, revokeWriteKey } from '../../accounts/write-keys.js';
import { administration } from '../../contract/limits.js';
import { administrators, everyone } from '../../contract/roles.js';
import { optional, text } from '../../contract/typebox.js';
import { assertCopyable } from '../../registry/second-copy.js';
import { does, shows } from '../command.js';
import { copied, copiedOrFails } from '../copied.js';

const overlapMsOf = (overlap: string | undefined) =>
  overlap === undefined ? undefined : parseOverlap(overlap);

export const keyCommands = {
  createKey: does('created an API key', {
    summary: 'Create an API key; only this answer has it',
    may: administrators,
    http: 'POST /environments/:app_id/key',
    cli: 'keys create APP_ID [--name NAME]   the key is shown once; further keys need names',
    given: {
      name: optional(text('Every further key needs its own name.')),
    },
    details: ({ name }) => ({ name }),
    run: (context, { app_id, name }) => copied(context, createApiKey(context.redis, app_id, name)),
  }),
  listKeys: shows({
    summary: 'API keys, never the keys themselves',
    may: everyone,
    http: 'GET /environments/:app_id/keys',
    cli: 'keys list APP_ID   when each was last used, and when it expires',
    run: ({ redis }, { app_id }) => listApiKeys(redis, app_id),
  }),
  rotateKey: does('rotated an API key', {
    summary: 'Replace all API keys, or the one with a name',
    may: administrators,
    http: 'PUT /environments/:app_id/key',
    cli: 'keys rotate APP_ID [--name NAME] [--overlap 24h]   replaces all keys, or one; they end at once, or that much later',
    given: {
      name: optional(text()),
      overlap: optional(text('How long the former keys stay valid, such as 24h.')),
    },
    details: ({ name, overlap }) => ({ name, overlapMs: overlapMsOf(overlap) }),
    run: async (context, { app_id, name, overlap }) => {
      // Before the former key ends: the new key is shown only once, and the former may be the only one in use.
      const copyMsMax = (context.copyMsMax ?? administration.copyMsMax) / 2;
      await assertCopyable(context.clickhouse, copyMsMax);
      const rotated = rotateApiKey(context.redis, app_id, { name, overlapMs: overlapMsOf(overlap) });
      return copied({ ...context, copyMsMax }, rotated);
    },
  }),
  revokeKey: does('revoked an API key', {
    summary: 'Revoke an API key, or all',
    may: administrators,
    http: {
      'DELETE /environments/:app_id/keys/:id': 'revokeKey',
      'DELETE /environments/:app_id/key': 'revokeKeys',
    },
    cli: 'keys revoke APP_ID [ID]   all keys, or one',
    given: { id: optional(text()) },
    run: (context, { app_id, id }) => copiedOrFails(context, revokeApiKey(context.redis, app_id, id)),
  }),
  showKey: shows({
    summary: 'When the latest API key was created',
    may: everyone,
    http: 'GET /environments/:app_id/key',
    cli: 'keys show APP_ID   when the latest was created',
    run: ({ redis }, { app_id }) => showApiKey(redis, app_id),
  }),

  createWriteKey: does('created a write key', {
    summary: 'Create a write key; only this answer has it',
    may: administrators,
    http: 'POST /environments/:app_id/write-keys',
    cli: 'write-keys create APP_ID [--name NAME]   the key is shown once',
    given: { name: optional(text()) },
    details: ({ name }) => ({ name }),
    run: (context, { app_id, name = '' }) => copied(context, createWriteKey(context.redis, app_id, name)),
  }),
  listWriteKeys: shows({
    summary: 'Write keys, never the keys themselves',
    may: everyone,
    http: 'GET /environments/:app_id/write-keys',
    cli: 'write-keys list APP_ID',
    run: ({ redis }, { app_id }) => listWriteKeys(redis, app_id),
  }),
  revokeWriteKey: does('revoked a write key', {
    summary: 'Revoke a write key',
    may: administrators,
    http: 'DELETE /environments/:app_id/write-keys/:id',
    cli: 'write-keys revoke APP_ID ID',
    given: { id: text() },
    run: (context, { app_id, id }) => copiedOrFails(context, revokeWriteKey(context.redis, app_id, id)),
  }),
};
