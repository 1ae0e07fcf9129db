// How much an account takes of the registry. Every API process reads all of it again after each change, so what one account
// could make grow without a bound would hold up the requests of all others.

import { administration } from '../contract/limits.js';
import type { Change, RegistrySnapshot } from '../registry/registry.js';

/** Whether changes to the documents of an account make them grow above what it may take. An account that has more keeps it. */
export function outgrows(snapshot: RegistrySnapshot, accountId: string, changes: readonly Change[]): boolean {
  const documents = documentsOf(snapshot, accountId);
  const growth = changes.reduce(
    (sum, { key, document }) => sum + bytesOf(document) - bytesOf(documents.get(key)),
    0,
  );
  if (growth <= 0) return false;
  const before = [...documents.values()].reduce<number>((sum, document) => sum + bytesOf(document), 0);
  return before + growth > administration.accountBytesMax;
}

/** By their keys. Its people are not among them: they are counted. */
function documentsOf(snapshot: RegistrySnapshot, accountId: string): Map<string, object | undefined> {
  const { accounts, environments, apiKeys, writeKeys, programKeys, callbacks } = snapshot;
  const own = [...environments.values()].filter(({ account_id }) => account_id === accountId);
  return new Map<string, object | undefined>([
    [`account:${accountId}`, accounts.get(accountId)],
    [`callback:${accountId}`, callbacks.get(accountId)],
    [`program_keys:${accountId}`, programKeys.get(accountId)],
    ...own.flatMap((environment): [string, object | undefined][] => {
      const { app_id } = environment;
      return [
        [`environment:${app_id}`, environment],
        [`api_key:${app_id}`, apiKeys.get(app_id)],
        [`write_keys:${app_id}`, writeKeys.get(app_id)],
      ];
    }),
  ]);
}

function bytesOf(document: object | undefined): number {
  return document === undefined ? 0 : Buffer.byteLength(JSON.stringify(document));
}
