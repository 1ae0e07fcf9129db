// The key with which the deployment signs certificates. It is made at the first start, and is in the registry like everything that must
// survive the loss of Redis or ClickHouse. The private part is read only to make a signature.

import { createHash, createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import type { ClickHouseClient } from '../clickhouse/client.js';
import type { signingKeySchema } from '../contract/privacy-answers.js';
import type { Static } from '../contract/typebox.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { type SigningKey, signingKeyKey } from '../registry/documents.js';
import { copyChanges, kindsOfCopies } from '../registry/outbox.js';
import { changeRegistry, readLoaded } from '../registry/registry.js';

/** Makes the key unless there is one. Settles when ClickHouse has it too. Rejects with StateNotLoaded. */
async function makeSigningKey(redis: Redis, clickhouse: ClickHouseClient): Promise<void> {
  await changeRegistry(redis, ({ signingKey }) => ({
    changes: signingKey === undefined ? [{ key: signingKeyKey, document: newSigningKey() }] : [],
    result: undefined,
  }));
  await copyChanges(redis, clickhouse, { kind: kindsOfCopies.document });
}

/**
 * The deployment's key. Nothing may be signed with a key that could be lost, so a key that ClickHouse does not have yet is copied first;
 * rejects if that fails.
 */
export async function readSigningKey(redis: Redis, clickhouse: ClickHouseClient): Promise<SigningKey> {
  const found = await find(redis);
  if (found !== undefined) return found;
  await makeSigningKey(redis, clickhouse);
  const kept = await find(redis);
  if (kept === undefined) throw new Error('the signing key was not kept');
  return kept;
}

/** The deployment's key; undefined if there is none, or if ClickHouse lacks it. */
async function find(redis: Redis): Promise<SigningKey | undefined> {
  const [text, isUncopied] = await readLoaded(redis, (transaction) =>
    transaction.hget(registryKeys.documents, signingKeyKey).zscore(registryKeys.uncopied, signingKeyKey),
  );
  return typeof text === 'string' && isUncopied === null ? (JSON.parse(text) as SigningKey) : undefined;
}

function newSigningKey(): SigningKey {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  return {
    key_id: keyIdOf(publicKey),
    public_key: String(publicKey.export({ type: 'spki', format: 'pem' })),
    private_key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
    created_at: new Date().toISOString(),
  };
}

/** Names a public key: the first digits of its hash. */
export function keyIdOf(publicKey: KeyObject): string {
  const der = publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(der).digest('hex').slice(0, 16);
}

export function publicPartOf({ key_id, public_key }: SigningKey): Static<typeof signingKeySchema> {
  return { algorithm: 'Ed25519', key_id, public_key };
}

export function privatePartOf({ private_key }: SigningKey): KeyObject {
  return createPrivateKey(private_key);
}
