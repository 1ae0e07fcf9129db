// What the scenario `deletion` prints and writes: bench/results/deletion.json with every run, and deletion.md with the
// figures of its targets.

import { figure, markdownTable, median } from '../figures.js';
import { describeInWords, type Machine } from '../machine.js';
import { lines } from '../report/plots.js';
import { renderSvg } from '../report/svg.js';
import { writeResults } from '../results.js';
import type { Load } from './load.js';
import type { BulkRun, ManyRun, OneRun } from './runs.js';

export type OneResult = {
  readonly events: number;
  readonly everywhere: readonly OneRun[];
  readonly inOnePart: readonly OneRun[];
};

export type LoadedBulkResult = {
  readonly ratePerSecond: number;
  readonly before: Load;
  readonly meanwhile: Load;
  readonly run: BulkRun;
};

export type DeletionResults = {
  readonly machine: Machine;
  /** As given on the command line. */
  readonly options: string;
  readonly events: number;
  readonly customers: number;
  readonly one: readonly OneResult[];
  readonly bulk: BulkRun | undefined;
  readonly bulkLoad: LoadedBulkResult | undefined;
  readonly many: ManyRun | undefined;
};

export function writeDeletionResults(results: DeletionResults): void {
  writeResults('deletion', results, deletionReport(results));
}

/** The plots of the page, by the suffixes of their names; settles when they are drawn. Without `one` there is none. */
export async function deletionPlots({ one }: DeletionResults): Promise<Record<string, string>> {
  return one.length > 0 ? { one: await renderSvg(onePlot(one)) } : {};
}

/** Time and written rows of one user's deletion, by the number of events. */
function onePlot(one: readonly OneResult[]) {
  const points = (value: (run: OneRun) => number) =>
    one.flatMap(({ events, everywhere, inOnePart }) => [
      { x: events / 1e6, y: median(everywhere.map(value)), line: 'rows in many parts' },
      { x: events / 1e6, y: median(inOnePart.map(value)), line: 'rows in one part' },
    ]);
  return lines(
    {
      title: 'Until complete, s, by millions of events',
      points: points((run) => run.completeSeconds),
    },
    { title: 'Rows written anew', points: points((run) => run.rowsRewritten) },
  );
}

/** In Markdown. */
export function deletionReport(results: DeletionResults): string {
  const { machine, options, one, bulk, bulkLoad, many } = results;
  const command = `npm run bench -- deletion${options === '' ? '' : ` ${options}`}`;
  const parts = [
    '# Deletion: from the submission to zero rows',
    `Written by \`${command}\`. ${describeInWords(machine)}`,
    checks,
    '## Targets',
    targetsTable(results),
  ];
  if (bulk !== undefined || bulkLoad !== undefined) {
    parts.push('## Many users in one request', bulkNote, bulkTable(bulk, bulkLoad?.run));
  }
  if (bulkLoad !== undefined) {
    const rate = figure(bulkLoad.ratePerSecond);
    parts.push(`## Acknowledgements at ${rate} events a second`, loadNote, loadTable(bulkLoad));
  }
  if (one.length > 0) {
    const plot = `![Time and rows written of one user's deletion, by stored events](deletion-one.svg)`;
    parts.push('## One user', oneNote, plot, oneTable(one));
  }
  if (many !== undefined) parts.push('## Requests of one user each', manyNote, manyTable(many));
  return `${parts.join('\n\n')}\n`;
}

const checks = `Times count from the sending of the submission until polling of the status over HTTP says \`complete\`. After every
run the tables were compared: of the targets nothing was left, and count and hash of all other rows were as
before. "CPU" is what the processes of the deployment used until \`complete\`, "others' share" the part of the machine's
CPU time that other programs used meanwhile: the more of it, the longer the times, while CPU hardly depends on it.`;

const bulkNote = `Seconds. "Parts gone" and "file rewritten" count from \`complete\` until a search for the bytes of one target's
identity through all files of ClickHouse, and of Redis, found none; it had been in both. The search itself takes
a second or more.`;

const loadNote = `Single events, sent when due whether or not earlier ones were answered, in runs of 3 s; ms. "Meanwhile" are the
runs that were under way between the submission and \`complete\`. The spread of
the p99 of the runs without a deletion is the noise of the machine.`;

const oneNote = `Medians. "In many parts": ten events over months; "in one part": all in one insert. A part that holds
nothing of the user is checked and hard-linked, not written: that the inode of its largest column file stayed the
same is what "parts written" counts by. Steps in ms, of the worker's log: "count" finds what is to go by request,
"check and write" is the mutation, "verify" counts what is left.`;

const manyNote = `One request after another, evenly over less than a minute.`;

function targetsTable({ one, bulk, bulkLoad, many }: DeletionResults): string {
  const rows: string[][] = [];
  const add = (what: string, unit: string, value: number, atMost: number) =>
    rows.push([what, `${figure(value)}${unit}`, `${atMost}${unit}`, value <= atMost ? 'met' : 'missed']);
  const traces = (run: BulkRun) => Math.max(run.partsGoneSeconds, run.redisRewrittenSeconds);
  if (bulk !== undefined) {
    add(`${figure(bulk.targets)} users, idle: complete`, ' s', bulk.completeSeconds, 10);
    add(`${figure(bulk.targets)} users, idle: bytes gone after that`, ' s', traces(bulk), 60);
  }
  if (bulkLoad !== undefined) {
    const { run, before, meanwhile } = bulkLoad;
    add(`${figure(run.targets)} users, under load: complete`, ' s', run.completeSeconds, 30);
    add(`${figure(run.targets)} users, under load: bytes gone after that`, ' s', traces(run), 60);
    const ratio = meanwhile.acknowledgedSinceDueMs.p99 / before.acknowledgedSinceDueMs.p99;
    add('p99 of the acknowledgement, meanwhile to before', ' times', ratio, 2);
  }
  for (const { events, everywhere, inOnePart } of one) {
    const seconds = (runs: readonly OneRun[]) => median(runs.map((run) => run.completeSeconds));
    const million = figure(events / 1e6);
    add(`one user in many parts of ${million} million events`, ' s', seconds(everywhere), 3);
    add(`one user in one part of ${million} million events`, ' s', seconds(inOnePart), 3);
  }
  if (many !== undefined) {
    const most = Math.max(...Object.values(many.mutationsAMinute));
    add(`${figure(many.requests)} requests: mutations of a table within a minute`, '', most, 20);
  }
  return markdownTable(['', 'measured', 'target', ''], rows);
}

function bulkTable(...runs: readonly (BulkRun | undefined)[]): string {
  const rows = runs.flatMap((run, index) =>
    run === undefined
      ? []
      : [
          [
            index === 0 ? 'idle' : 'under load',
            ...[
              run.targets,
              run.rows,
              run.answeredSeconds,
              run.completeSeconds,
              run.partsGoneSeconds,
              run.redisRewrittenSeconds,
              run.cpu.seconds,
              run.cpu.othersShare,
            ].map(figure),
          ],
        ],
  );
  const steps = runs.flatMap((run, index) =>
    (run?.rounds ?? []).map((round) => {
      const words = Object.entries(round).map(([name, ms]) => `${name} ${ms}`);
      return `Steps ${index === 0 ? 'idle' : 'under load'}, ms: ${words.join(', ')}.`;
    }),
  );
  const head = [
    '',
    'users',
    'rows',
    'answered',
    'complete',
    'parts gone',
    'file rewritten',
    'CPU, s',
    "others' share",
  ];
  return [markdownTable(head, rows), ...steps].join('\n\n');
}

function loadTable({ before, meanwhile }: LoadedBulkResult): string {
  const row = (name: string, load: Load) => [
    name,
    ...[load.acknowledgedSinceSentMs, load.acknowledgedSinceDueMs].flatMap(({ p50, p99, max }) =>
      [p50, p99, max].map(figure),
    ),
    load.p99SinceSentMsOfRuns.map(figure).join(' '),
  ];
  const head = ['', 'sent: p50', 'p99', 'max', 'due: p50', 'p99', 'max', 'p99 of each run, since sent'];
  return markdownTable(head, [row('before', before), row('meanwhile', meanwhile)]);
}

function oneTable(one: readonly OneResult[]): string {
  const of = (runs: readonly OneRun[], value: (run: OneRun) => number) => figure(median(runs.map(value)));
  const step = (name: string) => (run: OneRun) => run.steps[name] ?? Number.NaN;
  const rows = one.flatMap(({ events, everywhere, inOnePart }) =>
    [everywhere, inOnePart].map((runs, index) => [
      `${figure(events / 1e6)} million, ${index === 0 ? 'in many parts' : 'in one part'}`,
      of(runs, (run) => run.completeSeconds),
      `${of(runs, (run) => run.partsRewritten)} of ${of(runs, (run) => run.parts)}`,
      of(runs, (run) => run.rowsRewritten),
      of(runs, step('prepare')),
      of(runs, step('resolve')),
      of(runs, step('count')),
      of(runs, step('stored_events')),
      of(runs, step('verify')),
      of(runs, step('complete')),
      of(runs, (run) => run.cpu.seconds),
      of(runs, (run) => run.cpu.othersShare),
    ]),
  );
  const head = [
    '',
    'complete, s',
    'parts written',
    'rows written',
    'prepare',
    'resolve',
    'count',
    'check and write',
    'verify',
    'purge, complete',
    'CPU, s',
    "others' share",
  ];
  return markdownTable(head, rows);
}

function manyTable(many: ManyRun): string {
  const rows: [string, string][] = [
    ['requests', figure(many.requests)],
    ['submitted within, s', figure(many.submittedSeconds)],
    ['all complete after, s', figure(many.completeSeconds)],
    ['one request, median, s', figure(many.medianSeconds)],
    ['one request, longest, s', figure(many.longestSeconds)],
    ['rounds', figure(many.rounds.length)],
    ...Object.entries(many.mutations).map(([table, count]): [string, string] => [
      `mutations of ${table}: all; the most within a minute`,
      `${count}; ${many.mutationsAMinute[table] ?? 0}`,
    ]),
  ];
  return markdownTable(['', ''], rows);
}
