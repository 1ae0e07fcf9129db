// Runs the fuzzer against a whole private deployment, and then checks its process, its memory and its rows. (`case.ts` checks single
// answers.)

import { createEnvironments, createTestAccount, unlimited } from '../harness/accounts.js';
import { getToken, submitAccepted } from '../harness/deletion.js';
import { untilStored } from '../harness/ingestion.js';
import type { ApiHandle, SluiceHandle } from '../harness/services.js';
import { submitExport } from '../harness/user-export.js';
import { type Alike, compareAnswers, faultsOfAlike } from './alike.js';
import { startNeighbour } from './neighbour.js';
import { quantile, residentMib } from './process-figures.js';
import { type RunOptions, type RunResult, runFuzz, type Target } from './run.js';
import type { Table, Tally } from './tally.js';

export type FuzzReport = RunResult & {
  readonly seed: number;
  readonly alike: Alike;
  /** Whether the API process was gone at the end although no case showed a fault. */
  readonly died: boolean;
  /** Memory of the API process in MiB: before, highest, after. */
  readonly residentMib: { readonly before: number; readonly highest: number; readonly after: number };
  /** Latencies of a client beside the fuzzer, in ms; `aloneP99` is from before the first case. */
  readonly neighbour: {
    readonly requests: number;
    readonly faults: readonly string[];
    readonly p50: number;
    readonly p99: number;
    readonly max: number;
    readonly aloneP99: number;
  };
  readonly stored: Readonly<Record<Table, number>>;
  /** Stored rows that break the contract, and rows that ClickHouse refused. */
  readonly malformed: number;
  readonly quarantined: number;
};

/** How many requests are compared between suppressed users and others. */
const comparedRequests = 600;

/** Runs the cases against the deployment's first API process. */
export async function fuzzDeployment(sluice: SluiceHandle, options: RunOptions): Promise<FuzzReport> {
  const api = sluice.api[0] as ApiHandle;
  const alike = await compareAnswers(sluice, options.seed, comparedRequests);
  const [appId = '', neighbourAppId = ''] = await createEnvironments(sluice, [unlimited, unlimited]);
  const account = await createTestAccount(sluice, 'Nobody');
  const token = await getToken(sluice, account);
  const deletionRequestId = await submitAccepted(sluice, token, [{ user_id: 4 }]);
  const exportId = await submitExport(sluice, token, [{ identity: 'nobody@example.com' }]);
  const { hostname: host, port } = new URL(api.baseUrl);
  let { pid } = api;
  const target: Target = {
    host,
    port: Number(port),
    context: {
      appId,
      basic: `Basic ${btoa(`${account.appIds[0]}:${account.apiKey}`)}`,
      bearer: `Bearer ${token}`,
      deletionRequestId,
      exportId,
    },
    alive: () => api.running && api.pid === pid,
    restart: async () => {
      await api.restart();
      ({ pid } = api);
    },
  };

  const neighbour = startNeighbour({ baseUrl: api.baseUrl, appId: neighbourAppId, pid: api.pid });
  const memory = sampleMemory(() => api.pid);
  try {
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    const alone = await neighbour.report();
    const result = await runFuzz(target, options);
    const seen = await neighbour.report();
    const tookMs = seen.tookMs;
    const residents = memory.stop();
    if (result.fault === undefined) await untilStored(sluice, 120_000);
    // Checked only now, since the exit of a process is reported later than the end of its connections.
    const died = result.fault === undefined && !target.alive();
    return {
      ...result,
      alike,
      died,
      seed: options.seed,
      residentMib: residents,
      neighbour: {
        requests: tookMs.length,
        faults: seen.faults,
        p50: quantile(tookMs, 0.5),
        p99: quantile(tookMs, 0.99),
        max: Math.max(0, ...tookMs),
        aloneP99: quantile(alone.tookMs, 0.99),
      },
      stored: {
        events: await countRows(sluice, `events WHERE app_id = '${appId}'`),
        user_properties: await countRows(sluice, `user_properties WHERE app_id = '${appId}'`),
        user_identities: await countRows(sluice, `user_identities WHERE app_id = '${appId}'`),
      },
      malformed: await countMalformed(sluice, appId),
      quarantined: await countRows(sluice, "failed_events WHERE table_name != ''"),
    };
  } finally {
    memory.stop();
    await neighbour.stop();
  }
}

/** The bound of the p99 of the client beside the fuzzer: 250 ms for a busy machine, more if the client was slow even alone. */
export function p99MsMaxOf({ neighbour }: FuzzReport): number {
  return Math.max(250, 4 * neighbour.aloneP99);
}

const growthMibMax = 256;
/** One request in this many may be answered 503, since commits take too long while a disk stalls. */
const unavailableOneIn = 500;

/** Lists what is wrong with a run besides faults of single answers; empty when nothing is. */
export function faultsOf(report: FuzzReport): string[] {
  const { neighbour, residentMib: memory, tally, stored, malformed, quarantined } = report;
  const faults = faultsOfAlike(report.alike);
  if (report.died) faults.push('the API process ended');
  const unavailable = report.statuses[503] ?? 0;
  if (unavailable > report.cases / unavailableOneIn) faults.push(`503 was answered ${unavailable} times`);
  if (neighbour.faults.length > neighbour.requests / unavailableOneIn)
    faults.push(`the neighbour: ${neighbour.faults.slice(0, 3).join(', ')}`);
  if (neighbour.p99 > p99MsMaxOf(report))
    faults.push(`the neighbour waited: p99 ${neighbour.p99.toFixed(1)} ms`);
  if (memory.highest - memory.before > growthMibMax) {
    faults.push(`memory grew from ${memory.before.toFixed()} to ${memory.highest.toFixed()} MiB`);
  }
  for (const table of Object.keys(stored) as Table[]) {
    if (!isBetween(stored[table], tally, table)) {
      faults.push(
        `${table}: ${tally.accepted[table]} accepted and ${tally.perhaps[table]} perhaps, ${stored[table]} stored`,
      );
    }
  }
  if (malformed > 0) faults.push(`${malformed} stored rows break the contract`);
  if (quarantined > 0) faults.push(`ClickHouse refused ${quarantined} rows`);
  return faults;
}

function isBetween(rows: number, { accepted, perhaps }: Tally, table: Table): boolean {
  return rows >= accepted[table] && rows <= accepted[table] + perhaps[table];
}

function sampleMemory(pidNow: () => number) {
  const before = residentMib(pidNow());
  let highest = before;
  const sample = () => {
    highest = Math.max(highest, residentMib(pidNow()));
  };
  const timer = setInterval(sample, 200);
  return {
    stop: () => {
      clearInterval(timer);
      sample();
      return { before, highest, after: residentMib(pidNow()) };
    },
  };
}

async function countRows(sluice: SluiceHandle, from: string): Promise<number> {
  const [row] = await sluice.rows<{ rows: string }>(`SELECT toString(count()) AS rows FROM ${from}`);
  return Number(row?.rows);
}

async function countMalformed(sluice: SluiceHandle, appId: string): Promise<number> {
  const text = (column: string, max: number) => `isValidUTF8(${column}) AND lengthUTF8(${column}) <= ${max}`;
  const user = `${text('identity', 255)} AND ifNull(user_id, 0) <= 9007199254740991`;
  const events = `${user} AND (identity != '' OR user_id IS NOT NULL) AND ${text('event', 1024)} AND event != ''
    AND ${text('session_id', 255)} AND time >= '1970-01-01' AND time < now() + INTERVAL 25 HOUR
    AND arrayAll(key -> ${text('key', 1023)} AND key NOT IN ('user_id', 'session_id'), mapKeys(properties))
    AND arrayAll(value -> ${text('value', 1024)}, mapValues(properties))`;
  const properties = `${user} AND arrayAll(key -> ${text('key', 1023)} AND key != 'user_id', mapKeys(properties))
    AND arrayAll(value -> ${text('value', 255)}, mapValues(properties))`;
  const identities = `${user} AND identity != '' AND user_id IS NOT NULL`;
  const counts = await Promise.all(
    Object.entries({ events, user_properties: properties, user_identities: identities }).map(
      ([table, condition]) => countRows(sluice, `${table} WHERE app_id = '${appId}' AND NOT (${condition})`),
    ),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}
