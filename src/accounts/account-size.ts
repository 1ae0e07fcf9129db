// How much of the registry an account takes. Every API process reads all of it again after each change, so an account that could make it
// grow without a bound would slow down the requests of all others.

import { administration } from '../contract/limits.js';
import { type Change, environmentsOf, type RegistrySnapshot } from '../registry/registry.js';

/** Whether changes make the documents of an account grow above their bound. An account above it keeps what it has. */
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

/** The documents of an account, by their keys; without its people, whose number is limited. */
function documentsOf(snapshot: RegistrySnapshot, accountId: string): Map<string, object | undefined> {
  const { accounts, apiKeys, writeKeys, programKeys, callbacks } = snapshot;
  return new Map<string, object | undefined>([
    [`account:${accountId}`, accounts.get(accountId)],
    [`callback:${accountId}`, callbacks.get(accountId)],
    [`program_keys:${accountId}`, programKeys.get(accountId)],
    ...environmentsOf(snapshot, accountId).flatMap((environment): [string, object | undefined][] => {
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
