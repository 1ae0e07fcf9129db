// Creates accounts and environments for tests, tools and the bench, by the commands of `npm run admin`.

import { rateLimits } from '../../src/contract/limits.js';
import { paths, post } from './ingestion.js';
import type { Deployment } from './sluice.js';
import { until } from './wait.js';

type Administered = Pick<Deployment, 'admin' | 'api'>;

export type TestAccount = {
  readonly accountId: string;
  /** The first is Main Production. */
  readonly appIds: readonly string[];
  readonly apiKey: string;
};

/** How many environments one command creates. More would not fit into one request. */
const environmentsPerAccount = 1_000;

/** Options of `environments set` that lift all rate limits of an environment. */
export const unlimited: readonly string[] = Object.keys(rateLimits).flatMap((name) => [
  '--limit',
  `${name}=none`,
]);

/** Creates an account with an API key; settles when all API processes take records for its environments. */
export async function createTestAccount(
  sluice: Administered,
  name: string,
  environments: readonly string[] = ['Main Production', 'Staging'],
): Promise<TestAccount> {
  const { accountId, appIds } = await createAccount(sluice, name, environments);
  const { api_key: apiKey } = (await sluice.admin('keys', 'create', appIds[0] ?? '')) as { api_key: string };
  await untilKnown(sluice, appIds.at(-1) ?? '');
  return { accountId, appIds, apiKey };
}

/**
 * Adds an environment for each list of options of `environments set`; settles with the app_ids when all API processes
 * know the settings.
 */
export async function createEnvironments(
  sluice: Administered,
  settings: readonly (readonly string[])[],
): Promise<string[]> {
  const created: string[] = [];
  while (created.length < settings.length) {
    const count = Math.min(settings.length - created.length, environmentsPerAccount);
    const names = Array.from({ length: count }, (_, index) => `Environment ${index + 1}`);
    created.push(...(await createAccount(sluice, 'Tests', names)).appIds);
  }
  for (const [index, options] of settings.entries()) {
    if (options.length > 0) await sluice.admin('environments', 'set', created[index] ?? '', ...options);
  }
  await untilAllKnown(sluice);
  return created;
}

/** Does the same for one environment. */
export async function createEnvironment(
  sluice: Administered,
  ...options: readonly string[]
): Promise<string> {
  const [appId = ''] = await createEnvironments(sluice, [options]);
  return appId;
}

/** A process that knows an environment added now has also read all earlier settings. */
async function untilAllKnown(sluice: Administered): Promise<void> {
  const { appIds } = await createAccount(sluice, 'Added last', ['Last']);
  await untilKnown(sluice, appIds[0] ?? '');
}

async function createAccount(
  sluice: Administered,
  name: string,
  environments: readonly string[],
): Promise<Omit<TestAccount, 'apiKey'>> {
  const named = environments.flatMap((environment) => ['--environment', environment]);
  const created = (await sluice.admin('accounts', 'create', name, ...named)) as {
    account_id: string;
    environments: { app_id: string }[];
  };
  return {
    accountId: created.account_id,
    appIds: created.environments.map(({ app_id }) => app_id),
  };
}

/** Settles when all API processes know an environment. A process that does not know it reads the registry at once. */
export async function untilKnown({ api }: Pick<Deployment, 'api'>, appId: string): Promise<void> {
  const isKnown = async (baseUrl: string) =>
    (await post(baseUrl, paths.track, { app_id: appId })).code !== 'unknown_app_id';
  const what = `the API processes know environment ${appId}`;
  await Promise.all(api.map(({ baseUrl }) => until(() => isKnown(baseUrl), what)));
}

/** Loads the state into an emptied Redis; settles when all API processes take records again. */
export async function restoreState(deployment: Administered): Promise<void> {
  const { state } = (await deployment.admin('state', 'reload')) as { state: string };
  if (state !== 'restored') throw new Error(`Redis was not restored: ${state}`);
  await untilRegistryIsRead(deployment);
}

/**
 * Settles when all API processes have read the present registry. They read it every half a second, and at once when a request names an
 * environment that they do not know.
 */
export async function untilRegistryIsRead({ api }: Pick<Deployment, 'api'>): Promise<void> {
  const hasRead = async (baseUrl: string) =>
    (await post(baseUrl, paths.track, { app_id: '1' })).code === 'unknown_app_id';
  const what = 'the API processes have read the restored registry';
  await Promise.all(api.map(({ baseUrl }) => until(() => hasRead(baseUrl), what)));
}
