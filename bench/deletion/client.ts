// The deployment of the scenario `deletion`, and the deletion API as a caller uses it: token, submission, polling of the
// status.

import { type RedisHandle, type SluiceHandle, startRedis, startSluice } from '../../harness/services.js';
import type { DeletionRequest } from '../../src/deletion/request.js';
import { attachDeployment, type Deployment } from '../deployment/deployment.js';
import { cpuMicroseconds } from '../deployment/processes.js';
import { BenchError } from '../failure.js';
import type { User } from './population.js';

export type DeletionDeployment = {
  readonly deployment: Deployment;
  readonly appIds: readonly [string, string];
  readonly redisDir: string;
  readonly clickhouseDir: string;
  /** Submits a deletion; settles with its id when it is accepted. */
  submit(users: readonly User[]): Promise<string>;
  /** Polls once. */
  isComplete(requestId: string): Promise<boolean>;
  /** Settles when the status is complete; rejects after `secondsMax`. */
  untilComplete(requestId: string, secondsMax: number): Promise<void>;
  show(requestId: string): Promise<DeletionRequest>;
  /** Duration in ms of each step of the rounds since the last call, oldest first. */
  takeRounds(): Promise<Readonly<Record<string, number>>[]>;
  /** CPU time in s that the processes of the deployment have used since they started. */
  cpuSeconds(): number;
  stop(): Promise<void>;
};

const redisMemoryBytesMax = 6 * 1024 ** 3;
const pollMs = 40;
/** API processes read the registry twice per second. */
const environmentKnownMsMax = 10_000;
const api = '/api/public/v0';

export async function startDeletionDeployment(): Promise<DeletionDeployment> {
  const redis: RedisHandle = await startRedis({ appendfsync: 'always', maxmemory: redisMemoryBytesMax });
  const sluice = await startSluice({ redis });
  const { account_id: accountId, api_key: apiKey } = sluice.bootstrap;
  const { app_id: otherAppId } = (await sluice.admin('environments', 'add', accountId, 'second')) as {
    app_id: string;
  };
  const { baseUrl: url, database, redisUrl } = sluice;
  const clickhouseUrl = sluice.clickhouse.testerUrl;
  const token = await getToken(url, sluice.appId, apiKey ?? '');
  await openFirstSegment(url, otherAppId);
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  let logRead = 0;

  async function isComplete(requestId: string): Promise<boolean> {
    const reply = await fetch(`${url}${api}/deletion_status/${requestId}`, { headers });
    const body = await reply.text();
    if (reply.status !== 200) throw new BenchError(`a status was answered ${reply.status}: ${body}`);
    return (JSON.parse(body) as { status: string }).status === 'complete';
  }

  const show = async (requestId: string) =>
    (await sluice.admin('deletions', 'show', requestId)) as DeletionRequest;

  return {
    deployment: { ...attachDeployment({ url, clickhouseUrl, database }), redisUrl },
    appIds: [sluice.appId, otherAppId],
    redisDir: redis.dir,
    clickhouseDir: sluice.clickhouse.dir,
    async submit(users) {
      const body = JSON.stringify({ users });
      const reply = await fetch(`${url}${api}/user_deletion`, { method: 'POST', headers, body });
      const text = await reply.text();
      if (reply.status !== 201) throw new BenchError(`a submission was answered ${reply.status}: ${text}`);
      return (JSON.parse(text) as { deletion_request_id: string }).deletion_request_id;
    },
    isComplete,
    async untilComplete(requestId, secondsMax) {
      const deadline = performance.now() + secondsMax * 1000;
      while (!(await isComplete(requestId))) {
        if (performance.now() > deadline) {
          const shown = JSON.stringify(await show(requestId));
          throw new BenchError(`not complete within ${secondsMax} s: ${shown}`);
        }
        await new Promise((resolve) => setTimeout(resolve, pollMs));
      }
    },
    show,
    async takeRounds() {
      // The log arrives through a pipe.
      await new Promise((resolve) => setTimeout(resolve, 200));
      const text = workerLog(sluice).slice(logRead);
      const complete = text.slice(0, text.lastIndexOf('\n') + 1);
      logRead += complete.length;
      return complete.split('\n').flatMap((line) => {
        if (!line.includes('"stepMs"')) return [];
        return [(JSON.parse(line) as { stepMs: Record<string, number> }).stepMs];
      });
    },
    cpuSeconds: () => {
      const children = [...sluice.api, ...sluice.workers, redis, sluice.clickhouse];
      return children.reduce((sum, { pid }) => sum + cpuMicroseconds(pid), 0) / 1e6;
    },
    async stop() {
      await sluice.stop();
      await redis.remove();
    },
  };
}

function workerLog(sluice: SluiceHandle): string {
  return sluice.workers.map((worker) => worker.output()).join('');
}

/** A fence is the highest segment number so far, and a new deployment has none. */
async function openFirstSegment(url: string, appId: string): Promise<void> {
  const body = JSON.stringify({ app_id: appId, event: 'First', identity: 'nobody@example.com' });
  const headers = { 'content-type': 'application/json' };
  const deadline = performance.now() + environmentKnownMsMax;
  for (;;) {
    const reply = await fetch(`${url}/api/track`, { method: 'POST', headers, body });
    const text = await reply.text();
    if (reply.status === 200) return;
    if (performance.now() > deadline)
      throw new BenchError(`the first event was answered ${reply.status}: ${text}`);
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}

async function getToken(url: string, appId: string, apiKey: string): Promise<string> {
  const authorization = `Basic ${Buffer.from(`${appId}:${apiKey}`).toString('base64')}`;
  const reply = await fetch(`${url}${api}/auth_token`, { method: 'POST', headers: { authorization } });
  if (reply.status !== 200) throw new BenchError(`the token was refused: ${await reply.text()}`);
  return ((await reply.json()) as { access_token: string }).access_token;
}
