// Owns the metrics of one process. Labels come from closed sets only; nothing names an environment or a user.

import { Counter, Gauge, Histogram, Registry } from 'prom-client';

/** What this process counted itself. */
export const registry = new Registry();
/** What is true of the whole deployment. */
export const deploymentRegistry = new Registry();

const registers = [registry];
const deploymentRegisters = [deploymentRegistry];

export const recordsAccepted = new Counter({
  name: 'sluice_records_accepted_total',
  help: 'Records acknowledged and newly stored.',
  labelNames: ['endpoint'],
  registers,
});

export const recordsRepeated = new Counter({
  name: 'sluice_records_repeated_total',
  help: 'Records acknowledged whose idempotency key was known: nothing stored.',
  labelNames: ['endpoint'],
  registers,
});

export const requestsLimited = new Counter({
  name: 'sluice_requests_limited_total',
  help: 'Requests, or messages of the client library, refused by a rate limit.',
  labelNames: ['endpoint', 'limit'],
  registers,
});

export const recordsRejected = new Counter({
  name: 'sluice_records_rejected_total',
  help: 'Records, or whole requests, refused, by the code of their answer.',
  labelNames: ['endpoint', 'code'],
  registers,
});

export const requestsUnavailable = new Counter({
  name: 'sluice_requests_unavailable_total',
  help: 'Requests answered 503, by code: overloaded = nothing stored, unknown = perhaps stored.',
  labelNames: ['endpoint', 'code'],
  registers,
});

export const requestsFailed = new Counter({
  name: 'sluice_requests_failed_total',
  help: 'Requests that met an error of the service itself, by the path of their route.',
  labelNames: ['path'],
  registers,
});

export const commitRecords = new Histogram({
  name: 'sluice_commit_records',
  help: 'Records in one commit.',
  buckets: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000],
  registers,
});

export const commitSeconds = new Histogram({
  name: 'sluice_commit_seconds',
  help: 'Time of one commit, from sending it to its answer, repeats included.',
  buckets: [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2],
  registers,
});

export const commitRepeats = new Counter({
  name: 'sluice_commit_repeats_total',
  help: 'Commits sent again after a lost reply.',
  registers,
});

export const commitWaitingBytes = new Gauge({
  name: 'sluice_commit_waiting_bytes',
  help: 'Bytes of checked requests that wait for a commit.',
  registers,
});

// Properties of the deployment, not of a process: read from Redis when the metrics are asked for.
export const backlog = {
  segments: new Gauge({
    name: 'sluice_backlog_segments',
    help: 'Segments that ClickHouse does not have yet.',
    labelNames: ['shard'],
    registers: deploymentRegisters,
  }),
  rows: new Gauge({
    name: 'sluice_backlog_rows',
    help: 'Rows that ClickHouse does not have yet.',
    labelNames: ['shard'],
    registers: deploymentRegisters,
  }),
  bytes: new Gauge({
    name: 'sluice_backlog_bytes',
    help: 'Bytes of rows in Redis that ClickHouse does not have yet.',
    labelNames: ['shard'],
    registers: deploymentRegisters,
  }),
  oldestSeconds: new Gauge({
    name: 'sluice_backlog_oldest_seconds',
    help: 'Age of the oldest segment that ClickHouse does not have yet.',
    labelNames: ['shard'],
    registers: deploymentRegisters,
  }),
};

export const claimWindowSeconds = new Gauge({
  name: 'sluice_claim_window_seconds',
  help: 'How long idempotency keys are remembered at the present rate.',
  labelNames: ['shard'],
  registers: deploymentRegisters,
});

export const deletionsPending = new Gauge({
  name: 'sluice_deletions_pending',
  help: 'Deletion requests that are not complete, by what they wait for or why they failed last.',
  labelNames: ['state'],
  registers: deploymentRegisters,
});

export const deletionsOldestSeconds = new Gauge({
  name: 'sluice_deletions_oldest_seconds',
  help: 'Age of the oldest deletion request that is not complete.',
  registers: deploymentRegisters,
});

export const visualizerPairings = new Gauge({
  name: 'sluice_visualizer_pairings',
  help: 'Pairings with the Event Visualizer: their code waits to be entered, or they live.',
  labelNames: ['state'],
  registers: deploymentRegisters,
});

export const visualizerPages = new Gauge({
  name: 'sluice_visualizer_pages',
  help: 'Connections of Event Visualizer pages.',
  registers,
});

export const visualizerMessages = new Counter({
  name: 'sluice_visualizer_messages_total',
  help: 'Messages of paired devices: shown, or missed because the page was slow or the batch too large.',
  labelNames: ['result'],
  registers,
});

export const insertSeconds = new Histogram({
  name: 'sluice_insert_seconds',
  help: 'Time of one insert into ClickHouse.',
  labelNames: ['table', 'result'],
  buckets: [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30],
  registers,
});

export const insertRows = new Counter({
  name: 'sluice_insert_rows_total',
  help: 'Rows stored in ClickHouse.',
  labelNames: ['table'],
  registers,
});

export const tokensBurnt = new Counter({
  name: 'sluice_tokens_burnt_total',
  help: 'Deduplication tokens that ClickHouse had logged without storing their rows.',
  registers,
});

export const segmentsCompressed = new Counter({
  name: 'sluice_segments_compressed_total',
  help: 'Segments that waited for ClickHouse for so long that they were compressed.',
  registers,
});

export const rowsQuarantined = new Counter({
  name: 'sluice_rows_quarantined_total',
  help: 'Rows that ClickHouse refused for their data, kept in failed_events.',
  labelNames: ['table'],
  registers,
});
