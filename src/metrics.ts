// Owns the metrics of one process. Labels come from closed sets only; nothing names an environment or a user. Every metric
// has a panel in deploy/grafana/dashboard.json; an alert on it needs a rule, its test and a section of the runbook.

import { monitorEventLoopDelay } from 'node:perf_hooks';
import { HotHistogram } from './hot-histogram.js';
import { Counter, Gauge, Histogram, Registry, register } from './packages/prom-client.js';

/** The metrics of this process: all that name no other registry. */
export const processRegistry = register;
/** Values of the whole deployment. */
export const deploymentRegistry = new Registry();

/** A value of the deployment. Most are read from Redis when the metrics are requested. */
function ofDeployment<Label extends string = never>(name: string, help: string, ...labelNames: Label[]) {
  return new Gauge({ name, help, labelNames, registers: [deploymentRegistry] });
}

export const recordsAccepted = new Counter({
  name: 'sluice_records_accepted_total',
  help: 'Records acknowledged and newly stored.',
  labelNames: ['endpoint'],
});

export const recordsRepeated = new Counter({
  name: 'sluice_records_repeated_total',
  help: 'Records that were acknowledged but not stored, since their idempotency keys were known.',
  labelNames: ['endpoint'],
});

export const recordsSuppressed = new Counter({
  name: 'sluice_records_suppressed_total',
  help: 'Records that were acknowledged but not stored, since their users are suppressed.',
  labelNames: ['endpoint'],
});

export const usersUnjoined = new Counter({
  name: 'sluice_users_unjoined_total',
  help: 'Anonymous users who were identified as suppressed users and are not suppressed, since too many are already.',
});

export const recordsRepeatedLate = new Counter({
  name: 'sluice_records_repeated_late_total',
  help: 'Records that were acknowledged as new but not stored, since their idempotency keys were found in the index.',
  labelNames: ['table'],
});

export const requestsLimited = new Counter({
  name: 'sluice_requests_limited_total',
  help: 'Requests, or messages of the client library, that a rate limit refused.',
  labelNames: ['endpoint', 'limit'],
});

export const recordsRejected = new Counter({
  name: 'sluice_records_rejected_total',
  help: 'Refused records, or whole requests, by the code of the answer.',
  labelNames: ['endpoint', 'code'],
});

export const adminTokensRefused = new Counter({
  name: 'sluice_admin_tokens_refused_total',
  help: 'Requests and pages of administrators that were refused for a wrong or missing ADMIN_TOKEN.',
});

export const requestsUnavailable = new Counter({
  name: 'sluice_requests_unavailable_total',
  help: 'Requests that were answered 503, by code: overloaded = nothing stored, unknown = perhaps stored.',
  labelNames: ['endpoint', 'code'],
});

export const requestsFailed = new Counter({
  name: 'sluice_requests_failed_total',
  help: 'Requests that failed by an error of the service itself, by the path of their route.',
  labelNames: ['path'],
});

export const requestSeconds = new HotHistogram({
  name: 'sluice_http_request_duration_seconds',
  help: 'Time of a request, from its headers to its answer, by the path of its route and the status.',
  labelNames: ['endpoint', 'status'],
  buckets: [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5],
});

export const processSeconds = new Counter({
  name: 'sluice_process_cpu_seconds_total',
  help: 'CPU time of all processes of a kind.',
  labelNames: ['process'],
});

export const processMemoryBytes = new Gauge({
  name: 'sluice_process_memory_bytes',
  help: 'Resident memory of all processes of a kind.',
  labelNames: ['process'],
});

export const processLagSeconds = new Gauge({
  name: 'sluice_process_event_loop_lag_seconds',
  help: 'How late the event loop ran in the last 10 s: the 99th percentile, of the process where it is highest.',
  labelNames: ['process'],
  aggregator: 'max',
});

export const commitRecords = new HotHistogram({
  name: 'sluice_commit_records',
  help: 'Records in one commit.',
  buckets: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000],
}).of({});

export const commitSeconds = new HotHistogram({
  name: 'sluice_commit_seconds',
  help: 'Time of one commit, from when it is sent to its answer, including attempts that had to be repeated.',
  buckets: [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2],
}).of({});

export const commitRepeats = new Counter({
  name: 'sluice_commit_repeats_total',
  help: 'Commits sent again after a lost reply.',
});

export const commitsLost = new Counter({
  name: 'sluice_commits_lost_total',
  help: 'Acknowledged commits that a new primary of Redis lacks.',
});

export const commitWaitingBytes = new Gauge({
  name: 'sluice_commit_waiting_bytes',
  help: 'Bytes of checked requests that wait for a commit.',
});

export const ledgerDifferences = ofDeployment(
  'sluice_ledger_differences',
  'Minutes of environments whose records do not add up: some are missing, or there are too many.',
);

export const ledgerUncheckedSeconds = ofDeployment(
  'sluice_ledger_unchecked_seconds',
  'Age of the oldest minute whose records have not been checked yet.',
);

export const backlog = {
  segments: ofDeployment('sluice_backlog_segments', 'Segments that ClickHouse does not have yet.', 'shard'),
  rows: ofDeployment('sluice_backlog_rows', 'Rows that ClickHouse does not have yet.', 'shard'),
  bytes: ofDeployment(
    'sluice_backlog_bytes',
    'Bytes of rows in Redis that ClickHouse does not have yet.',
    'shard',
  ),
  oldestSeconds: ofDeployment(
    'sluice_backlog_oldest_seconds',
    'Age of the oldest segment that ClickHouse does not have yet.',
    'shard',
  ),
};

/** The bounds that this process was started with, so that rules for alerts can compare with them. */
export const bounds = {
  backlogBytes: ofDeployment('sluice_backlog_bytes_max', 'BACKLOG_BYTES_MAX: above it records are refused.'),
  claimBytes: ofDeployment(
    'sluice_claim_bytes_max',
    'CLAIM_BYTES_MAX: memory for remembered idempotency keys.',
  ),
  eraseWithinSeconds: ofDeployment(
    'sluice_erase_within_seconds',
    'ERASE_WITHIN: how long the rows of hidden users may stay on the disk.',
  ),
  commitWaitingBytes: ofDeployment(
    'sluice_commit_waiting_bytes_max',
    'Bytes of checked requests that may wait for a commit in one process; above it requests are refused.',
  ),
};

export const workersTicking = ofDeployment(
  'sluice_workers_ticking',
  '1 while some worker serves the shard, else 0.',
  'shard',
);

/** What each server of Redis uses. Servers are numbered from 0. */
export const redisServer = {
  memoryBytes: ofDeployment('sluice_redis_memory_bytes', 'Memory that Redis uses.', 'server'),
  memoryBytesMax: ofDeployment(
    'sluice_redis_memory_bytes_max',
    'maxmemory of Redis; 0 if it has none.',
    'server',
  ),
  fileBytes: ofDeployment(
    'sluice_redis_append_only_file_bytes',
    'Size of the append-only file on its disk.',
    'server',
  ),
  fileOk: ofDeployment(
    'sluice_redis_append_only_file_ok',
    '1 if Redis keeps an append-only file and its last write and rewrite succeeded, else 0.',
    'server',
  ),
};

export const redisReplicas = ofDeployment('sluice_redis_replicas', 'Replicas that the primary of Redis has.');

export const redisTakeOvers = ofDeployment(
  'sluice_redis_take_overs',
  'How often another server has become the primary of Redis.',
);

export const clickhouseUp = ofDeployment(
  'sluice_clickhouse_up',
  '1 if the ClickHouse server answers, else 0. Servers are numbered as in CLICKHOUSE_URL.',
  'server',
);

export const clickhousePartsSetAside = ofDeployment(
  'sluice_clickhouse_parts_set_aside',
  'Parts of tables that the ClickHouse server set aside because it cannot read them: their rows are missing.',
  'server',
);

export const clickhouseSetBack = ofDeployment(
  'sluice_clickhouse_set_back',
  '1 if the ClickHouse server was set back to older data, else 0. While it is 1, nothing is stored.',
  'server',
);

export const clickhouseDisk = {
  freeBytes: ofDeployment(
    'sluice_clickhouse_disk_free_bytes',
    'Free bytes on the disk of ClickHouse that has the fewest.',
  ),
  bytes: ofDeployment(
    'sluice_clickhouse_disk_bytes',
    'Size of the disk of ClickHouse that has the fewest free bytes.',
  ),
};

export const claimWindowSeconds = ofDeployment(
  'sluice_claim_window_seconds',
  'How long Redis remembers idempotency keys. Repeats within this time are noticed at once.',
  'shard',
);

export const deletionsPending = ofDeployment(
  'sluice_deletions_pending',
  'Deletion requests that are not complete, by what they wait for or why the last attempt failed; beyond the oldest 1,000 as submitted.',
  'state',
);

export const deletionsOldestSeconds = ofDeployment(
  'sluice_deletions_oldest_seconds',
  'Age of the oldest deletion request that is neither hidden nor complete.',
);

export const deletionsHiddenSeconds = ofDeployment(
  'sluice_deletions_hidden_oldest_seconds',
  'Age of the oldest deletion request whose users are hidden but not erased yet.',
);

export const deletionsErasedNow = new Counter({
  name: 'sluice_deletions_erase_now_total',
  help: 'Deletion requests whose rows are erased at once, since they or the settings of their account ask for it.',
});

export const maskedBytes = ofDeployment(
  'sluice_masked_bytes',
  'Bytes of the parts that hold masked rows, which are not erased yet.',
);

export const retentionUnfinishedSeconds = ofDeployment(
  'sluice_retention_unfinished_seconds',
  'How long a run that deletes expired rows has been due; 0 if none is due.',
);

export const insertSeconds = new Histogram({
  name: 'sluice_insert_seconds',
  help: 'Time of one insert into ClickHouse.',
  labelNames: ['table', 'result'],
  buckets: [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30],
});

export const queryableSeconds = new Gauge({
  name: 'sluice_queryable_seconds',
  help: 'Time from the opening of the segment that was stored last until its rows could be queried.',
  aggregator: 'max',
});

export const rowsInserted = new Counter({
  name: 'sluice_insert_rows_total',
  help: 'Rows stored in ClickHouse.',
  labelNames: ['table'],
});

export const keyLookupSeconds = new Histogram({
  name: 'sluice_key_lookup_seconds',
  help: 'Time to look up the keys of one segment in the index, by result; incomplete = the segment has to wait.',
  labelNames: ['result'],
  buckets: [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30],
});

export const keysLookedUp = new Counter({
  name: 'sluice_keys_looked_up_total',
  help: 'Idempotency keys that were looked up: in the index, or in the rows of segments that hold many of them.',
});

export const keysUnfiltered = new Counter({
  name: 'sluice_keys_unfiltered_total',
  help: 'Idempotency keys that were looked up only because the filter in the worker was not loaded.',
});

export const tokensBurnt = new Counter({
  name: 'sluice_tokens_burnt_total',
  help: 'Deduplication tokens that ClickHouse had logged without storing their rows.',
});

export const segmentsCompressed = new Counter({
  name: 'sluice_segments_compressed_total',
  help: 'Segments that were compressed because they waited long for ClickHouse.',
});

export const rowsQuarantined = new Counter({
  name: 'sluice_rows_quarantined_total',
  help: 'Rows that ClickHouse refused for their data, kept in failed_events.',
  labelNames: ['table'],
});

export type ProcessKind = 'api' | 'worker';

/** How often the loop's delay is sampled. At every 20 ms, these timers took a fifth of an idle API process's CPU. */
const sampledEveryMs = 50;
const updateEveryMs = 1_000;
/** The lag is measured over periods of this length; the metric shows the last complete period. */
const periodMs = 10_000;

/** Begins to measure this process. */
export function watchProcess(kind: ProcessKind): void {
  const labels = { process: kind };
  const delay = monitorEventLoopDelay({ resolution: sampledEveryMs });
  delay.enable();
  let counted = 0;
  let periodBegan = performance.now();
  const update = () => {
    const { user, system } = process.cpuUsage();
    const seconds = (user + system) / 1e6;
    processSeconds.inc(labels, seconds - counted);
    counted = seconds;
    processMemoryBytes.set(labels, process.memoryUsage.rss());
    if (performance.now() - periodBegan < periodMs) return;
    // A sample is the time between two runs of a timer, so a loop without delay shows the timer's own period.
    const lateMs = delay.percentile(99) / 1e6 - sampledEveryMs;
    processLagSeconds.set(labels, Math.max(0, lateMs) / 1_000);
    delay.reset();
    periodBegan = performance.now();
  };
  processLagSeconds.set(labels, 0);
  update();
  setInterval(update, updateEveryMs).unref();
}
