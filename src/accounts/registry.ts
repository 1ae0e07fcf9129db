// The registry: documents in one Redis hash, changed by optimistic writes. Owns reading and changing them;
// what a change means is in accounts.ts.

import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { valuesOf } from '../redis/transactions.js';
import {
  type Account,
  type ApiKey,
  type Deployment,
  type DocumentKey,
  deploymentKey,
  type Environment,
} from './documents.js';

/** All documents as they were at one version. */
export type RegistrySnapshot = {
  readonly version: string;
  /** Undefined when this Redis has none: a first start, or an emptied Redis. */
  readonly deployment: Deployment | undefined;
  readonly accounts: ReadonlyMap<string, Account>;
  readonly environments: ReadonlyMap<string, Environment>;
  readonly apiKeys: ReadonlyMap<string, ApiKey>;
};

export type Change = { readonly key: DocumentKey; readonly document: object | undefined };

export class StateNotLoaded extends Error {
  constructor() {
    super('Redis does not hold this deployment: run "npm run admin -- restore" or start again');
  }
}

/** The registry's version; changes whenever a document does. */
export async function readVersion(redis: Redis): Promise<string> {
  return (await redis.get(registryKeys.version)) ?? '0';
}

/** Reads all documents and the version they have together. */
export async function readRegistry(redis: Redis): Promise<RegistrySnapshot> {
  const replies = await redis
    .multi()
    .get(registryKeys.version)
    .hgetall(registryKeys.documents)
    .get(registryKeys.epoch)
    .exec();
  const [version, documents, epoch] = valuesOf(replies);
  return snapshotOf(
    (version as string | null) ?? '0',
    documents as Record<string, string>,
    epoch !== null && epoch !== undefined,
  );
}

export function snapshotOf(
  version: string,
  documents: Readonly<Record<string, string>>,
  loaded: boolean,
): RegistrySnapshot {
  const accounts = new Map<string, Account>();
  const environments = new Map<string, Environment>();
  const apiKeys = new Map<string, ApiKey>();
  for (const [key, text] of Object.entries(documents)) {
    const colon = key.indexOf(':');
    const id = key.slice(colon + 1);
    const document: unknown = JSON.parse(text);
    if (key.startsWith('account:')) accounts.set(id, document as Account);
    else if (key.startsWith('environment:')) environments.set(id, document as Environment);
    else if (key.startsWith('api_key:')) apiKeys.set(id, document as ApiKey);
  }
  const deploymentText = documents[deploymentKey];
  const deployment =
    loaded && deploymentText !== undefined ? (JSON.parse(deploymentText) as Deployment) : undefined;
  return { version, deployment, accounts, environments, apiKeys };
}

const changeAttemptsMax = 20;

/**
 * Changes documents: `decide` sees a snapshot and answers with the changes and a result. It is asked again
 * when another writer came first. Throws StateNotLoaded when this Redis is not the deployment's.
 */
export async function changeRegistry<T>(
  redis: Redis,
  decide: (snapshot: RegistrySnapshot) => { changes: Change[]; result: T },
): Promise<T> {
  for (let attempt = 0; attempt < changeAttemptsMax; attempt++) {
    const snapshot = await readRegistry(redis);
    if (snapshot.deployment === undefined) throw new StateNotLoaded();
    const { changes, result } = decide(snapshot);
    if (changes.length === 0) return result;
    const written = await writeChanges(redis, snapshot.deployment.epoch, snapshot.version, changes);
    if (written === -2) throw new StateNotLoaded();
    if (written !== -1) return result;
  }
  throw new Error('the registry changed too often while it was to be changed');
}

async function writeChanges(
  redis: Redis,
  epoch: string,
  version: string,
  changes: Change[],
): Promise<number> {
  const reply = await runScript(
    redis,
    scripts.writeRegistry,
    [registryKeys.epoch, registryKeys.documents, registryKeys.version, registryKeys.unmirrored],
    [
      epoch,
      version,
      ...changes.flatMap(({ key, document }) => [
        key,
        document === undefined ? '' : JSON.stringify(document),
      ]),
    ],
  );
  return Number(reply);
}
