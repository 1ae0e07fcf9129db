// `npm run chaos`: rounds of faults against the whole service.
//
//   npm run chaos                       20 random rounds, then every crash point, then the faults that never took effect so far
//   npm run chaos -- --rounds 200       this many; continues an earlier run that was stopped, and writes RESULTS.md
//   npm run chaos -- --parallel 3       this many rounds at a time, each on a deployment of its own
//   npm run chaos -- --fresh            begins a new run
//   npm run chaos -- --crash-points     only the crash points
//   npm run chaos -- --mutants          services that break a promise; the checker must catch each
//   npm run chaos -- --mutant NAME      one of them, without writing its result
//   npm run chaos -- --faults a,b       one round with these faults
//   npm run chaos -- --three            three Redis masters and three ClickHouse servers; with --rounds, --fresh, --faults, SEED
//   npm run chaos -- --nodes            a Redis with replicas and sentinels on three hosts; with --rounds, --fresh, --faults, SEED
//   npm run chaos -- --cluster          a Redis Cluster with replicas on nine hosts; likewise
//   npm run chaos -- --disks            the disk of Redis, of ClickHouse or of both is full; with --rounds, --fresh, --faults, SEED
//   SEED=n npm run chaos                the round with this seed, as a failure prints it

import { randomInt } from 'node:crypto';
import { canMakeHosts } from '../harness/hosts.js';
import { readOptions } from '../harness/options.js';
import { faultKinds } from './faults.js';
import { crashFaults } from './faults-crashes.js';
import { mutants, runMutant } from './mutants.js';
import { seedOf } from './random.js';
import { describeFailure, describeRound } from './report.js';
import { missingFaults, readCommit, writeMutants, writeResults } from './results.js';
import type { RoundResult } from './round.js';
import { openRun } from './run-file.js';
import { createRunner, type Runner } from './runner.js';
import { crashSchedules, faultsOf, randomSchedule, type Schedule, scheduleOf } from './schedule.js';
import { shrink } from './shrink.js';
import { canMount } from './small-disk.js';
import { findTools, remedies, type Tool } from './tools.js';

const values = readOptions('chaos', {
  rounds: { type: 'string', default: '20' },
  parallel: { type: 'string', default: '1' },
  fresh: { type: 'boolean', default: false },
  'crash-points': { type: 'boolean', default: false },
  mutants: { type: 'boolean', default: false },
  mutant: { type: 'string' },
  faults: { type: 'string' },
  three: { type: 'boolean', default: false },
  disks: { type: 'boolean', default: false },
  nodes: { type: 'boolean', default: false },
  cluster: { type: 'boolean', default: false },
});
const layout = (['three', 'disks', 'nodes', 'cluster'] as const).find((name) => values[name]) ?? 'one';
const roundsWanted = Number(values.rounds);
const parallel = Number(values.parallel);
const seedGiven =
  process.env.SEED === undefined || process.env.SEED === '' ? undefined : Number(process.env.SEED);
const whole = [roundsWanted, parallel, seedGiven ?? 0].every(Number.isInteger);
if (!whole || roundsWanted < 0 || parallel < 1) {
  process.stderr.write('chaos: --rounds, --parallel and SEED must be whole numbers\n');
  process.exit(1);
}

/** How many rounds at most are added for kinds of faults that took no effect. (Declared here since the rounds begin below.) */
const closingRoundsMax = 12;
const faultsPerClosingRound = 3;

// On a signal, the exit handlers end the processes and remove the mounts.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));

const say = (text: string) => process.stdout.write(`${text}\n`);
const tools = await findTools();
for (const tool of Object.keys(remedies) as Tool[]) {
  if (!tools.has(tool)) say(`Some faults cannot be caused here without ${tool}: ${remedies[tool]}.`);
}

if (layout === 'disks' && !(canMount('tmpfs') && canMount('ext4'))) {
  say(
    'chaos: this machine cannot make a disk to fill: that needs the right to mount a tmpfs and an ext4 in a file (root), and e2fsprogs',
  );
  process.exit(1);
}
if ((layout === 'nodes' || layout === 'cluster') && !canMakeHosts()) {
  say('chaos: this machine cannot make hosts: that needs root and iproute2');
  process.exit(1);
}
if (values.mutants || values.mutant !== undefined) process.exitCode = await checkMutants(values.mutant);
else if (values.faults !== undefined) {
  process.exitCode = await runOnce(
    scheduleOf(seedGiven ?? randomInt(2 ** 31), values.faults.split(','), layout),
  );
} else if (seedGiven !== undefined) process.exitCode = await runOnce(scheduleBySeed(seedGiven));
else process.exitCode = await runAll();
// Handles that a broken deployment left open must not keep the process alive.
process.exit();

async function runAll(): Promise<number> {
  const { run, results, add } = openRun(randomInt(2 ** 31), values.fresh, layout);
  // Crash points concern single processes, so other layouts would test the same.
  const crashes = layout === 'one' ? crashSchedules() : [];
  const random = Array.from({ length: roundsWanted }, (_, round) =>
    randomSchedule(seedOf(run.seed, 1_000 + round), tools, layout),
  );
  const schedules = values['crash-points'] ? crashes : [...random, ...crashes];
  const done = new Set(results.map(({ schedule }) => schedule.seed));
  const left = schedules.filter(({ seed }) => !done.has(seed));
  say(`Seed ${run.seed}: ${schedules.length} rounds, ${schedules.length - left.length} of them done before.`);
  const lane = async (next: () => Schedule | undefined) => {
    const runner = createRunner(layout, tools.has('loop'));
    for (let schedule = next(); schedule !== undefined; schedule = next()) {
      const result = await runner.run(schedule);
      add(result);
      results.push(result);
      say(describeRound(result));
      if (result.broken.length > 0) await explain(runner, result);
      if (layout !== 'one' || !values['crash-points']) writeResults(run, results, layout);
    }
    await runner.close();
  };
  await Promise.all(Array.from({ length: parallel }, () => lane(() => left.shift())));
  if (!values['crash-points']) await lane(closingRounds(run.seed, results));
  const missing = values['crash-points'] ? missingCrashes(results) : missingFaults(results, layout);
  if (missing.length > 0)
    say(`These never took effect, so the run proves nothing about them: ${missing.join(', ')}`);
  const broken = results.filter((result) => result.broken.length > 0).length;
  say(`${results.length} rounds, ${broken} with a broken promise.`);
  return broken > 0 || missing.length > 0 ? 1 : 0;
}

/** Makes rounds of the kinds of faults that took no effect yet, first those that were never tried or not for longest. */
function closingRounds(seed: number, results: readonly RoundResult[]): () => Schedule | undefined {
  const possible = new Set(faultKinds(tools, layout));
  let rounds = 0;
  return () => {
    const tried = results.flatMap(({ schedule }) => faultsOf(schedule));
    const missing = missingFaults(results, layout)
      .filter((fault) => possible.has(fault))
      .sort((one, other) => tried.lastIndexOf(one) - tried.lastIndexOf(other));
    if (missing.length === 0 || rounds === closingRoundsMax) return;
    rounds += 1;
    return scheduleOf(seedOf(seed, results.length), missing.slice(0, faultsPerClosingRound), layout);
  };
}

function missingCrashes(results: readonly RoundResult[]): string[] {
  const names = new Set(crashFaults.map(({ name }) => name));
  return missingFaults(results).filter((name) => names.has(name));
}

/** One round, without the search for a shorter schedule. */
async function runOnce(schedule: Schedule): Promise<number> {
  const runner = createRunner(layout, tools.has('loop'));
  const result = await runner.run(schedule);
  await runner.close();
  say(describeRound(result));
  if (result.broken.length > 0) say(describeFailure(result, readCommit()));
  return result.broken.length > 0 ? 1 : 0;
}

/** The schedule with a seed: one of the crash schedules, otherwise a random one. */
function scheduleBySeed(seed: number): Schedule {
  const crashes = layout === 'one' ? crashSchedules() : [];
  return crashes.find((schedule) => schedule.seed === seed) ?? randomSchedule(seed, tools, layout);
}

async function explain(runner: Runner, failing: RoundResult): Promise<void> {
  say(describeFailure(failing, readCommit()));
  const shortest = await shrink(failing, (schedule) => runner.run(schedule));
  if (shortest !== failing) say(describeFailure(shortest, readCommit()));
}

async function checkMutants(name: string | undefined): Promise<number> {
  const rows = [];
  const chosen = mutants.filter((mutant) => name === undefined || mutant.name === name);
  if (chosen.length === 0)
    say(`There is no mutant ${name}: ${mutants.map((mutant) => mutant.name).join(', ')}`);
  for (const mutant of chosen) {
    const { caught, kinds, output } = await runMutant(mutant, seedGiven ?? 1);
    say(`${caught ? 'caught' : 'NOT CAUGHT'}: ${mutant.name} (${kinds.join(', ')})`);
    if (!caught) say(output.slice(-4_000));
    rows.push({ name: mutant.name, kinds, caught });
  }
  if (name === undefined) writeMutants(rows);
  return rows.length > 0 && rows.every(({ caught }) => caught) ? 0 : 1;
}
