// `npm run fuzz -- [--count N] [--seed S] [--from CASE]`: sends N mutated requests to a private deployment. Writes
// test/fuzz/RESULTS.md, unless --from skips the first case. `npm run fuzz -- --neighbour` abuses every endpoint beside a neighbour
// instead, and prints how that slowed the neighbour down (abuse.ts).

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describeInWords, describeMachine } from '../../bench/machine.js';
import { readOptions } from '../harness/options.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { abuseDeployment, abusesWithin, describeAbuses } from './abuse.js';
import { type FuzzReport, faultsOf, fuzzDeployment, p99MsMaxOf } from './deployment.js';
import { describeFault } from './run.js';

const resultsFile = fileURLToPath(new URL('../../../test/fuzz/RESULTS.md', import.meta.url));

function wholeNumber(text: string, name: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  process.stderr.write(`fuzz: --${name} must be a whole number below 1,000,000,000\n`);
  process.exit(2);
}

const values = readOptions('fuzz', {
  count: { type: 'string', default: '200000' },
  seed: { type: 'string', default: '1' },
  from: { type: 'string', default: '0' },
  neighbour: { type: 'boolean', default: false },
});
const count = wholeNumber(values.count, 'count');
const seed = wholeNumber(values.seed, 'seed');
const from = wholeNumber(values.from, 'from');

// The exit handlers end the services and remove their data.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
if (values.neighbour) process.exit(await runAbuses());
const sluice = await startSluice();
const report = await fuzzDeployment(sluice, { seed, count, from });
const faults = faultsOf(report);
const text = await describe(sluice, report, faults);
process.stdout.write(text);
if (from === 0) writeFileSync(resultsFile, text);
await sluice.stop();
process.exit(report.fault === undefined && faults.length === 0 ? 0 : 1);

async function runAbuses(): Promise<number> {
  const deployment = await startSluice({ apiProcesses: 2 });
  const result = await abuseDeployment(deployment);
  process.stdout.write(describeAbuses(result));
  await deployment.stop();
  return abusesWithin(result) ? 0 : 1;
}

async function describe(
  { clickhouseUrl, redisUrl, database, rows }: SluiceHandle,
  report: FuzzReport,
  faults: readonly string[],
): Promise<string> {
  const { fault, tally, ...seen } = report;
  const machine = await describeMachine({ clickhouseUrl, redisUrl, database, rows } as never);
  const { neighbour, residentMib: memory, stored, followUps, alike } = seen;
  const wrong = [...(fault === undefined ? [] : [describeFault(fault)]), ...faults];
  const statuses = Object.entries(seen.statuses).map(([status, replies]) => `| ${status} | ${replies} |`);
  const tables = (Object.keys(stored) as (keyof typeof stored)[]).map(
    (table) => `| ${table} | ${tally.accepted[table]} | ${tally.perhaps[table]} | ${stored[table]} |`,
  );
  return `# Mutated requests

Written by \`npm run fuzz -- --count ${count} --seed ${seed}\`. ${describeInWords(machine)}

${seen.cases} mutations of valid requests of every public endpoint, in ${(seen.tookMs / 1000).toFixed()} s, 48 at a time.
Each is followed on its connection by a valid request whose answer names it.

**${wrong.length === 0 ? 'Nothing was wrong.' : 'Something was wrong:'}**
${wrong.map((line) => `\n\`\`\`\n${line}\n\`\`\`\n`).join('')}
- Nothing but 100, 2xx, 304, 4xx, the parser's own 505 and 503 (${seen.statuses[503] ?? 0} times) was answered, and no answer
  named another request.
- The valid requests behind them: ${followUps.answered} answered, ${followUps.closed} on connections that were closed, ${followUps.unanswered} swallowed
  by a request before them that was not complete.
- ${alike.requests} valid requests about suppressed users were answered as the same requests about others, ${alike.repeats} of them as repeats and
  ${alike.statuses[429] ?? 0} as above a limit; ${alike.rows[0]} and ${alike.rows[1]} rows are stored.
- A well-behaved client beside it: ${neighbour.requests} requests, p50 ${neighbour.p50.toFixed(1)} ms, p99 ${neighbour.p99.toFixed(1)} ms, at most ${neighbour.max.toFixed(1)} ms
  (alone before: p99 ${neighbour.aloneP99.toFixed(1)} ms; the bound of the p99 is ${p99MsMaxOf(report).toFixed()} ms).
- Memory of the API process: ${memory.before.toFixed()} MiB before, ${memory.highest.toFixed()} at most, ${memory.after.toFixed()} after.
- Rows that break the contract: ${seen.malformed}. Rows that ClickHouse refused: ${seen.quarantined}.

| answer | mutated requests |
| --- | ---: |
${statuses.join('\n')}

| table | accepted | perhaps (not answered) | stored |
| --- | ---: | ---: | ---: |
${tables.join('\n')}
`;
}
