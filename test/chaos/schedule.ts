// Plans the faults of a round by its seed: steps one after another; in each step, tracks at the same time; in each track, faults one after
// another.

import type { FullDisk, Layout } from './deployment.js';
import type { Part } from './fault.js';
import { crashKinds, faultKinds, faultsNamed } from './faults.js';
import { excludingCrashes } from './faults-crashes.js';
import { createRandom, seedOf } from './random.js';
import type { Tool } from './tools.js';

export type Planned = {
  readonly fault: string;
  /** Which of the faults of that name, that is, which process it affects. */
  readonly variant: number;
  /** Decides for how long the fault is held, and other details. */
  readonly seed: number;
};

export type Track = readonly Planned[];
export type Schedule = {
  readonly seed: number;
  readonly steps: readonly (readonly Track[])[];
  /** The disk that can be filled, and whose data is on it; only in rounds of full disks. */
  readonly full?: FullDisk;
  /** The command that runs it again. */
  readonly replay: string;
};

/** Two or three steps of one to three faults. The same seed, tools and layout give the same schedule. */
export function randomSchedule(seed: number, tools: ReadonlySet<Tool>, layout: Layout = 'one'): Schedule {
  const kinds = faultKinds(tools, layout);
  const random = createRandom(seed);
  const stepsMax = layout === 'disks' ? 2 : 3;
  const steps = Array.from({ length: random.int(2, stepsMax) }, () => {
    const taken = new Set<Part>();
    const tracks: Track[] = [];
    for (let left = random.int(1, 3); left > 0; left -= 1) {
      const fault = random.pick(kinds);
      const variants = faultsNamed(fault, layout);
      const free = random
        .shuffle(variants.map((_, index) => index))
        .find((index) => !variants[index]?.touches.some((part) => taken.has(part)));
      const planned = { fault, variant: free ?? 0, seed: random.int(1, 2 ** 31 - 1) };
      if (free === undefined) continue;
      for (const part of variants[free]?.touches ?? []) taken.add(part);
      tracks.push([planned]);
    }
    return tracks;
  });
  return { seed, steps, replay: replayOf(seed, layout), ...fullDiskOf(seed, layout) };
}

function fullDiskOf(seed: number, layout: Layout): Pick<Schedule, 'full'> {
  if (layout !== 'disks') return {};
  const random = createRandom(seedOf(seed, 1));
  return {
    full: {
      fileSystem: random.pick(['tmpfs', 'ext4'] as const),
      holds: random.pick(['redis', 'clickhouse', 'both'] as const),
    },
  };
}

/** A schedule of these faults one after another, one per step. */
export function scheduleOf(seed: number, names: readonly string[], layout: Layout = 'one'): Schedule {
  const steps = names.map((fault, index) => [[{ fault, variant: 0, seed: seedOf(seed, index) }]]);
  const replay = replayOf(seed, layout, `--faults '${names.join(',')}'`);
  return { seed, steps, replay, ...fullDiskOf(seed, layout) };
}

function replayOf(seed: number, layout: Layout, ...more: readonly string[]): string {
  const options = [...(layout === 'one' ? [] : [`--${layout}`]), ...more];
  return [`SEED=${seed} npm run chaos`, ...(options.length === 0 ? [] : ['--', ...options])].join(' ');
}

const crashesPerTrack = 18;
const lossesPerRound = 9;
/** The same schedules in every run. */
const crashSeed = 1;

/**
 * Plans a crash at the first, second and third passing of every crash point. The two API processes share those of the API. One worker gets
 * the crashes that exclude each other, and meanwhile the other gets the rest. Crashes with a loss of Redis come one after another.
 */
export function crashSchedules(names = crashKinds): Schedule[] {
  const seed = crashSeed;
  const plan = (fault: string, variant: number) => ({
    fault,
    variant,
    seed: seedOf(seed, crashKinds.indexOf(fault)),
  });
  const byPart = new Map<Part, Planned[]>();
  const losses: Planned[] = [];
  for (const fault of names) {
    const variants = faultsNamed(fault);
    if (variants.length === 1) {
      losses.push(plan(fault, 0));
      continue;
    }
    const parts = variants.map(({ touches: [part] }) => part as Part);
    const lengths = parts.map((part) => byPart.get(part)?.length ?? 0);
    const ofWorker = excludingCrashes.has(fault) ? 'worker-1' : 'worker-2';
    const variant = parts.includes(ofWorker)
      ? parts.indexOf(ofWorker)
      : lengths.indexOf(Math.min(...lengths));
    const part = parts[variant] as Part;
    byPart.set(part, [...(byPart.get(part) ?? []), plan(fault, variant)]);
  }
  const rounds = Math.ceil(Math.max(...[...byPart.values()].map(({ length }) => length)) / crashesPerTrack);
  const schedules = Array.from({ length: rounds }, (_, round) => ({
    seed: seedOf(seed, round),
    replay: replayOf(seedOf(seed, round), 'one'),
    steps: [[...byPart.values()].map((all) => part(all, round, rounds)).filter(({ length }) => length > 0)],
  }));
  const oneByOne = Array.from({ length: Math.ceil(losses.length / lossesPerRound) }, (_, at) => ({
    seed: seedOf(seed, rounds + at),
    replay: replayOf(seedOf(seed, rounds + at), 'one'),
    steps: losses.slice(at * lossesPerRound, (at + 1) * lossesPerRound).map((planned) => [[planned]]),
  }));
  return [...schedules, ...oneByOne];
}

export function faultsOf({ steps }: Schedule): string[] {
  return steps.flat(2).map(({ fault }) => fault);
}

/** Whether a crash schedule is one of those in which Redis is emptied. */
export function losesRedis({ steps }: Schedule): boolean {
  return steps.length > 1;
}

/** The n-th of `count` parts of about equal size. */
function part<T>(values: readonly T[], n: number, count: number): T[] {
  return values.slice(Math.floor((n * values.length) / count), Math.floor(((n + 1) * values.length) / count));
}

/** Describes a schedule in one line: semicolons separate steps, commas tracks, and arrows the faults of a track. */
export function describeSchedule({ steps, full }: Schedule): string {
  const faults = steps
    .map((tracks) => tracks.map((track) => track.map(({ fault }) => fault).join(' → ')).join(', '))
    .join('; ');
  return full === undefined ? faults : `${full.fileSystem} of ${full.holds}: ${faults}`;
}
