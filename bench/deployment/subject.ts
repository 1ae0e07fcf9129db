// The deployment under test as the subject of a measured run.

import { readMetric } from '../../harness/fault-checks.js';
import { untilStored } from '../../harness/ingestion.js';
import type { Commits, Subject } from '../throughput/measure.js';
import type { Deployment, OwnProcesses } from './deployment.js';
import { countRecords, mergesEnded } from './stored.js';

export function deploymentSubject(deployment: Deployment): Subject {
  const { own } = deployment;
  return {
    url: deployment.url,
    cpu: () => deployment.cpu(),
    systemCpu: () => deployment.systemCpu(),
    commits: () => readCommits(own.sluice.api),
    stored: async (appId) => {
      // The count alone is not enough: one event may be stored twice while another is still missing.
      await untilStored(own.sluice);
      return deployment.stored(appId);
    },
    count: (appId) => countRecords(deployment, appId),
    settle: () => mergesEnded(deployment),
  };
}

/** The commits of all API processes since they started, from their metrics. */
async function readCommits(api: OwnProcesses['sluice']['api']): Promise<Commits> {
  const sum = async (metric: string) => {
    const values = await Promise.all(api.map((process) => readMetric(process, metric)));
    return values.reduce<number>((total, value) => total + (value ?? 0), 0);
  };
  return {
    count: await sum('sluice_commit_seconds_count'),
    records: await sum('sluice_commit_records_sum'),
  };
}
