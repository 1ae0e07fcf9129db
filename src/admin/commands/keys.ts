// Commands: API keys and write keys of environments.

import {
  createApiKey,
  listApiKeys,
  parseOverlap,
  revokeApiKey,
  rotateApiKey,
  showApiKey,
} from '../../accounts/api-keys.js';
import { assertCopyable } from '../../accounts/mirror.js';
import { createWriteKey, listWriteKeys, revokeWriteKey } from '../../accounts/write-keys.js';
import { administrationAnswers as answers } from '../../contract/administration-answers.js';
import { administration } from '../../contract/limits.js';
import { administrators, everyone } from '../../contract/roles.js';
import { Type } from '../../contract/typebox.js';
import { command, ofEnvironment, optional, text } from '../command.js';
import { copied, copiedOrFails } from '../copied.js';

const overlapMsOf = (overlap: string | undefined) =>
  overlap === undefined ? undefined : parseOverlap(overlap);

export const keyCommands = {
  createKey: command({
    summary: 'Create an API key; the answer has it, once',
    may: administrators,
    http: 'POST /environments/:app_id/key',
    cli: {
      line: 'keys create APP_ID [--name NAME]',
      help: 'the key is shown once; further keys need names',
    },
    given: {
      ...ofEnvironment,
      name: Type.Optional(Type.String({ description: 'A further key needs one of its own.' })),
    },
    answer: answers.createKey,
    audit: { words: 'created an API key', details: ({ name }) => ({ name }) },
    run: (context, { app_id, name }) => copied(context, createApiKey(context.redis, app_id, name)),
  }),
  listKeys: command({
    summary: 'API keys, never the keys themselves',
    may: everyone,
    http: 'GET /environments/:app_id/keys',
    cli: { line: 'keys list APP_ID', help: 'when each was last used, and when it expires' },
    given: ofEnvironment,
    answer: answers.listKeys,
    audit: 'none',
    run: ({ redis }, { app_id }) => listApiKeys(redis, app_id),
  }),
  rotateKey: command({
    summary: 'Replace all API keys, or the one with a name',
    may: administrators,
    http: 'PUT /environments/:app_id/key',
    cli: {
      line: 'keys rotate APP_ID [--name NAME] [--overlap 24h]',
      help: 'replaces all keys, or one; they end at once, or that much later',
    },
    given: {
      ...ofEnvironment,
      name: optional,
      overlap: Type.Optional(
        Type.String({ description: 'How long the former ones stay good, such as 24h.' }),
      ),
    },
    answer: answers.rotateKey,
    audit: {
      words: 'rotated an API key',
      details: ({ name, overlap }) => ({ name, overlapMs: overlapMsOf(overlap) }),
    },
    run: async (context, { app_id, name, overlap }) => {
      // Before the former key ends: the new one is shown only once, and the former one may be the only one that anybody has.
      const copyMsMax = (context.copyMsMax ?? administration.copyMsMax) / 2;
      await assertCopyable(context.clickhouse, copyMsMax);
      const rotated = rotateApiKey(context.redis, app_id, { name, overlapMs: overlapMsOf(overlap) });
      return copied({ ...context, copyMsMax }, rotated);
    },
  }),
  revokeKey: command({
    summary: 'Revoke an API key, or all',
    may: administrators,
    http: {
      'DELETE /environments/:app_id/keys/:id': 'revokeKey',
      'DELETE /environments/:app_id/key': 'revokeKeys',
    },
    cli: { line: 'keys revoke APP_ID [ID]', help: 'all keys, or one' },
    given: { ...ofEnvironment, id: optional },
    answer: answers.revokeKey,
    audit: { words: 'revoked an API key' },
    run: (context, { app_id, id }) => copiedOrFails(context, revokeApiKey(context.redis, app_id, id)),
  }),
  showKey: command({
    summary: 'When the latest API key was created',
    may: everyone,
    http: 'GET /environments/:app_id/key',
    cli: { line: 'keys show APP_ID', help: 'when the latest was created' },
    given: ofEnvironment,
    answer: answers.showKey,
    audit: 'none',
    run: ({ redis }, { app_id }) => showApiKey(redis, app_id),
  }),

  createWriteKey: command({
    summary: 'Create a write key; the answer has it, once',
    may: administrators,
    http: 'POST /environments/:app_id/write-keys',
    cli: { line: 'write-keys create APP_ID [--name NAME]', help: 'the key is shown once' },
    given: { ...ofEnvironment, name: optional },
    answer: answers.createWriteKey,
    audit: { words: 'created a write key', details: ({ name }) => ({ name }) },
    run: (context, { app_id, name = '' }) => copied(context, createWriteKey(context.redis, app_id, name)),
  }),
  listWriteKeys: command({
    summary: 'Write keys, never the keys themselves',
    may: everyone,
    http: 'GET /environments/:app_id/write-keys',
    cli: { line: 'write-keys list APP_ID' },
    given: ofEnvironment,
    answer: answers.listWriteKeys,
    audit: 'none',
    run: ({ redis }, { app_id }) => listWriteKeys(redis, app_id),
  }),
  revokeWriteKey: command({
    summary: 'Revoke a write key',
    may: administrators,
    http: 'DELETE /environments/:app_id/write-keys/:id',
    cli: { line: 'write-keys revoke APP_ID ID' },
    given: { ...ofEnvironment, id: text },
    answer: answers.revokeWriteKey,
    audit: { words: 'revoked a write key' },
    run: (context, { app_id, id }) => copiedOrFails(context, revokeWriteKey(context.redis, app_id, id)),
  }),
};
