// The figures of a run, and the bounds that it broke.

import { figure } from '../figures.js';
import { type Histogram, percentileMs } from '../load/histogram.js';
import { countEndings, endings, endingsInWords, latenciesOf, type MergedSecond } from '../load/second.js';
import { limitOf } from '../throughput/measure.js';

export const percentiles = { p50: 50, p90: 90, p99: 99, 'p99.9': 99.9, 'p99.99': 99.99, max: 100 } as const;
export type Percentile = keyof typeof percentiles;

/** A bound of the latency, in ms. */
export type Bound = { readonly percentile: Percentile; readonly ms: number };

export type Outcome = ReturnType<typeof outcomeOf>;
/** What a log contains: everything but what limited the load. */
export type LoggedOutcome = Omit<Outcome, 'limit'> & Partial<Pick<Outcome, 'limit'>>;

/** The latency of a run of ten seconds or more leaves out the first seconds, in which connections and processes are new. */
const warmUpSeconds = 2;
const warmUpFromSeconds = 10;

export function outcomeOf(
  { seconds, generatorShare }: { readonly seconds: readonly MergedSecond[]; readonly generatorShare: number },
  { rate, seconds: length }: { readonly rate?: number; readonly seconds: number },
) {
  const counted = countEndings(seconds);
  const requests = Object.values(counted).reduce((sum, count) => sum + count, 0);
  const unsent = counted[endings.unsent] ?? 0;
  const perSecond = (requests - unsent) / length;
  return {
    /** The requested rate per second; absent if requests were sent as fast as they were answered. */
    ...(rate === undefined ? {} : { rate }),
    /** Requests with or without an answer. */
    requests,
    perSecond,
    endings: counted,
    /** The share of requests without a good answer. */
    errors: requests === 0 ? 1 : (requests - (counted['200'] ?? 0)) / requests,
    /**
     * In ms from when requests were due or, without a rate, from when they were sent; over good answers, and requests that waited in vain.
     */
    latencyMs: latencyOf(latenciesOf(length >= warmUpFromSeconds ? seconds.slice(warmUpSeconds) : seconds)),
    limit: limitOf({ generator: generatorShare, ofRate: rate && perSecond / rate, unsent }),
  };
}

/** Percentiles in ms; NaN if nothing was recorded. */
export function latencyOf(histogram: Histogram): Record<Percentile, number> {
  return Object.fromEntries(
    Object.entries(percentiles).map(([name, percent]) => [name, percentileMs(histogram, percent)]),
  ) as Record<Percentile, number>;
}

export function findMissed(
  outcome: Outcome,
  { bounds, errorsMax }: { readonly bounds: readonly Bound[]; readonly errorsMax: number },
): string[] {
  const missed = bounds
    .filter(({ percentile, ms }) => !(outcome.latencyMs[percentile] <= ms))
    .map(({ percentile, ms }) => `${percentile} ${outcome.latencyMs[percentile]} ms, at most ${ms}`);
  if (outcome.errors > errorsMax) {
    const [found, most] = [outcome.errors, errorsMax].map(percentText);
    missed.push(`errors ${found}, at most ${most}: ${endingsInWords(outcome.endings)}`);
  }
  return missed;
}

export function percentText(share: number): string {
  return `${Number((share * 100).toPrecision(3))} %`;
}

export function describeOutcome({ perSecond, errors, latencyMs, limit, endings: counted }: Outcome): string {
  const latency = Object.entries(latencyMs).map(([name, ms]) => `${name} ${figure(ms)}`);
  const unsent = counted[endings.unsent] ?? 0;
  return [
    `${figure(perSecond)} requests/s`,
    `${latency.join(', ')} ms`,
    `errors ${percentText(errors)}`,
    ...(unsent > 0 ? [`${unsent} were due but not sent, because no connection was free`] : []),
    `limit: ${limit}`,
  ].join('; ');
}
