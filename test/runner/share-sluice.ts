// One deployment for those files of a run that share one. A variable in the environment of the run's processes describes it.

import { createTestAccount } from '../harness/accounts.js';
import { runAdmin } from '../harness/administration.js';
import {
  type Deployment,
  queryRows,
  type SluiceHandle,
  type SluiceOptions,
  startSluice,
} from '../harness/sluice.js';
import { temporaryRoot } from './temporary-root.js';

const variable = 'SHARED_SLUICE';

type Description = Omit<Deployment, 'admin' | 'rows' | 'appId'>;

export const toShare: SluiceOptions = { apiProcesses: 2 };

/** Starts the deployment for all files that this process runs from now on; settles with the function that ends it. */
export async function shareSluice(): Promise<() => Promise<void>> {
  process.env.TMPDIR = temporaryRoot();
  const sluice = await startSluice(toShare);
  process.env[variable] = JSON.stringify(describe(sluice));
  return async () => {
    for (const child of [...sluice.api, ...sluice.workers, sluice.redis, sluice.clickhouse])
      if (!child.running)
        process.stderr.write(`sluice: the shared ${child.name} ended: ${child.output().slice(-4_000)}\n`);
    await sluice.stop();
  };
}

function describe(sluice: SluiceHandle): Description {
  const { baseUrl, adminUrl, adminToken, redisUrl, clickhouseUrl, database, env } = sluice;
  const { origin, tester, reader } = sluice.clickhouse;
  const api = sluice.api.map((one) => ({ baseUrl: one.baseUrl, adminUrl: one.adminUrl }));
  const clickhouse = { origin, tester, reader };
  return { baseUrl, adminUrl, adminToken, redisUrl, clickhouseUrl, database, env, api, clickhouse };
}

/** The deployment of this run, with a new app_id; undefined if the process does not belong to a run. */
export async function sluiceOfRun(): Promise<Deployment | undefined> {
  const text = process.env[variable];
  if (text === undefined) return undefined;
  const description = JSON.parse(text) as Description;
  const { api, env, clickhouse, database } = description;
  const admin = (...args: readonly string[]) => runAdmin(args, env);
  const { appIds } = await createTestAccount({ admin, api }, 'Test file');
  return {
    ...description,
    appId: appIds[0] ?? '',
    admin,
    rows: (sql) => queryRows(clickhouse, database, sql),
  };
}
