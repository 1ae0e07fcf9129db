// One deployment for those files of a run that share one. A variable in the environment of their processes describes it.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createTestAccount } from '../harness/accounts.js';
import { runAdmin } from '../harness/administration.js';
import {
  type Deployment,
  queryRows,
  type SluiceHandle,
  type SluiceOptions,
  startSluice,
} from '../harness/sluice.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import type { Shared } from './run.js';
import { temporaryRoot } from './temporary-root.js';

const variable = 'SHARED_SLUICE';

type Description = Omit<Deployment, 'admin' | 'rows' | 'appId' | 'api' | 'workers'> & {
  readonly api: readonly Omit<Deployment['api'][number], 'output'>[];
  readonly workers: readonly { readonly name: string }[];
  /** The folder with the output of each of these processes. */
  readonly outputs: string;
};

export const toShare: SluiceOptions = { apiProcesses: 2 };

export async function shareSluice(): Promise<Shared> {
  process.env.TMPDIR = temporaryRoot();
  const outputs = tempDir('outputs');
  const sluice = await startSluice({ ...toShare, outputs });
  const stop = async () => {
    for (const child of [...sluice.api, ...sluice.workers, sluice.redis, sluice.clickhouse])
      if (!child.running)
        process.stderr.write(`sluice: the shared ${child.name} ended: ${child.output().slice(-4_000)}\n`);
    await sluice.stop();
    removeTempDir(outputs);
  };
  return { env: { [variable]: JSON.stringify(describe(sluice, outputs)) }, stop };
}

function describe(sluice: SluiceHandle, outputs: string): Description {
  const { baseUrl, adminUrl, adminToken, redisUrl, clickhouseUrl, database, env } = sluice;
  const { origin, tester, reader } = sluice.clickhouse;
  const api = sluice.api.map(({ baseUrl, adminUrl, name, pid }) => ({ baseUrl, adminUrl, name, pid }));
  const workers = sluice.workers.map(({ name }) => ({ name }));
  const clickhouse = { origin, tester, reader };
  const urls = { baseUrl, adminUrl, redisUrl, clickhouseUrl };
  return { ...urls, adminToken, database, env, api, workers, clickhouse, outputs };
}

/** The deployment of this run, with a new app_id; undefined if the process does not belong to a run. */
export async function sluiceOfRun(): Promise<Deployment | undefined> {
  const text = process.env[variable];
  if (text === undefined) return undefined;
  const description = JSON.parse(text) as Description;
  const { env, clickhouse, database, outputs } = description;
  const withOutput = <Described extends { readonly name: string }>(child: Described) => ({
    ...child,
    output: () => readFileSync(join(outputs, child.name), 'utf8'),
  });
  const api = description.api.map(withOutput);
  const admin = (...args: readonly string[]) => runAdmin(args, env);
  const { appIds } = await createTestAccount({ admin, api }, 'Test file');
  return {
    ...description,
    api,
    workers: description.workers.map(withOutput),
    appId: appIds[0] ?? '',
    admin,
    rows: (sql) => queryRows(clickhouse, database, sql),
  };
}
