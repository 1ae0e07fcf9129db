// Histograms for values that are observed at every commit or request. prom-client's own histogram looks up its labels with each value: a
// value takes 0.29 µs in a loop instead of 0.01, and under load an event cost the API 27.3 µs instead of 26.2.

import { type Histogram, type Registry, register } from './packages/prom-client.js';

type HotHistogramOptions<Label extends string> = {
  readonly name: string;
  readonly help: string;
  readonly labelNames?: readonly Label[];
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[];
  /** The registries that show it; by default prom-client's own. */
  readonly registers?: readonly Registry[];
};

type Values = Awaited<ReturnType<Histogram['get']>>['values'];

/** The counts of one histogram, or of one set of labels. */
export class Buckets {
  readonly #bounds: Float64Array;
  /** For each bound, the number of values that are at most this bound and above the previous one; last, the number above all bounds. */
  readonly #counts: Float64Array;
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = Float64Array.from(bounds);
    this.#counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    if (!Number.isFinite(value)) throw new TypeError(`${value} is not a finite number`);
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] as number)) at += 1;
    (this.#counts[at] as number) += 1;
    this.#sum += value;
  }

  /** The values as prom-client shows them: the count up to each bound, the sum, the count; without a value only sum and count. */
  valuesOf(name: string, labels: Readonly<Record<string, string>>): Values {
    let total = 0;
    const values: Values = [];
    const isEmpty = this.#counts.every((count) => count === 0);
    for (const [at, count] of isEmpty ? [] : this.#counts.entries()) {
      total += count;
      const le = this.#bounds[at] ?? '+Inf';
      values.push({ metricName: `${name}_bucket`, labels: { le, ...labels }, value: total });
    }
    values.push({ metricName: `${name}_sum`, labels, value: this.#sum });
    values.push({ metricName: `${name}_count`, labels, value: total });
    return values;
  }
}

/**
 * A histogram that a registry reads like one of prom-client's own. Callers keep the buckets of their labels, so that no value needs a
 * look-up.
 */
export class HotHistogram<Label extends string = never> {
  readonly name: string;
  readonly labelNames: readonly Label[];
  readonly #help: string;
  readonly #bounds: readonly number[];
  readonly #children: { readonly labels: Readonly<Record<Label, string>>; readonly buckets: Buckets }[] = [];

  constructor({ name, help, buckets, labelNames = [], registers = [register] }: HotHistogramOptions<Label>) {
    this.name = name;
    this.labelNames = labelNames;
    this.#help = help;
    this.#bounds = buckets;
    for (const registry of registers) registry.registerMetric(this as unknown as Histogram);
  }

  /** The buckets of these labels. From now on their count and sum are shown, and their buckets once they hold a value. */
  of(labels: Readonly<Record<Label, string>>): Buckets {
    const isSame = (child: { readonly labels: Readonly<Record<Label, string>> }) =>
      this.labelNames.every((name) => child.labels[name] === labels[name]);
    const known = this.#children.find(isSame);
    if (known !== undefined) return known.buckets;
    const buckets = new Buckets(this.#bounds);
    this.#children.push({ labels, buckets });
    return buckets;
  }

  async get(): ReturnType<Histogram['get']> {
    return {
      name: this.name,
      help: this.#help,
      type: 'histogram' as never,
      aggregator: 'sum',
      collect: () => undefined,
      values: this.#children.flatMap(({ labels, buckets }) => buckets.valuesOf(this.name, labels)),
    };
  }
}
