// Plots the series of a soak in one SVG: a small plot for each, with the faults as vertical lines.

import { parse, View } from 'vega';
import { compile, type TopLevelSpec } from 'vega-lite';
import type { FaultEvent } from './faults.js';
import type { Samples } from './samples.js';

/** Settles with the SVG's text. */
export async function plot(samples: Samples, faults: readonly FaultEvent[]): Promise<string> {
  const minutes = (atMs: number) => atMs / 60_000;
  const values = Object.entries(samples).flatMap(([name, points]) =>
    points.map(({ atMs, value }) => ({ name, minute: minutes(atMs), value })),
  );
  const rules = faults.map(({ atMs, what }) => ({ minute: minutes(atMs), what }));
  const spec: TopLevelSpec = {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    background: 'white',
    data: { values },
    facet: { field: 'name', type: 'nominal', title: null, sort: Object.keys(samples) },
    columns: 2,
    spec: {
      width: 360,
      height: 90,
      layer: [
        {
          data: { values: rules },
          mark: { type: 'rule', strokeDash: [2, 3] },
          encoding: {
            x: { field: 'minute', type: 'quantitative' },
            color: { field: 'what', type: 'nominal', title: 'faults' },
          },
        },
        {
          mark: { type: 'line', color: '#333', strokeWidth: 1 },
          encoding: {
            x: { field: 'minute', type: 'quantitative', title: 'minutes' },
            y: { field: 'value', type: 'quantitative', title: null, scale: { zero: true } },
          },
        },
      ],
    },
    resolve: { scale: { y: 'independent' } },
  };
  const view = new View(parse(compile(spec).spec), { renderer: 'none' });
  const svg = await view.toSVG();
  view.finalize();
  return svg;
}
