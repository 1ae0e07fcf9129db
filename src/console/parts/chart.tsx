// A chart of the records of an hour or a week. It is drawn on a canvas, so what it shows is also said in words and can be
// copied as a table.

import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { Copy } from './parts.js';

export type Traffic = {
  readonly step_seconds: number;
  readonly at: readonly number[];
  readonly accepted: readonly number[];
  readonly repeated: readonly number[];
  readonly limited: readonly number[];
  readonly rejected: readonly number[];
};

const series = [
  ['accepted', '--good'],
  ['repeated', '--accent'],
  ['limited', '--warn'],
  ['rejected', '--bad'],
] as const;

const heightPx = 240;

export function Chart({ traffic }: { readonly traffic: Traffic }) {
  const place = useRef<HTMLDivElement>(null);
  const [pointed, setPointed] = useState<number | undefined>(undefined);
  useEffect(() => {
    const { current } = place;
    if (current === null) return;
    let plot = draw(current, traffic, setPointed);
    const again = () => {
      plot.destroy();
      plot = draw(current, traffic, setPointed);
    };
    const resized = new ResizeObserver(() => plot.setSize(sizeOf(current)));
    resized.observe(current);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', again);
    return () => {
      resized.disconnect();
      dark.removeEventListener('change', again);
      plot.destroy();
    };
  }, [traffic]);
  const sums = series.map(
    ([name]) => `${traffic[name].reduce((sum, count) => sum + count, 0).toLocaleString()} ${name}`,
  );
  const at = pointed === undefined ? undefined : traffic.at[pointed];
  const shown =
    pointed === undefined || at === undefined
      ? sums
      : series.map(([name]) => `${(traffic[name][pointed] ?? 0).toLocaleString()} ${name}`);
  const rows = traffic.at.map((at, index) =>
    [new Date(at * 1000).toISOString(), ...series.map(([name]) => traffic[name][index])].join(','),
  );
  const csv = [['begin', ...series.map(([name]) => name)].join(','), ...rows].join('\r\n');
  return (
    <figure class="chart">
      <div ref={place} class="plot" role="img" aria-label={`Records over time: ${sums.join(', ')}`} />
      <figcaption>
        <ul class="legend">
          {series.map(([name], index) => (
            <li key={name} class={name}>
              {shown[index]}
            </li>
          ))}
          <li class="at muted">
            {at === undefined ? 'in all' : `from ${pointedText(at, traffic.step_seconds)}`}
          </li>
        </ul>
        <Copy text={csv} label="Copy as CSV:" what="Records over time" />
      </figcaption>
    </figure>
  );
}

function sizeOf(place: HTMLElement) {
  return { width: Math.max(200, place.clientWidth), height: heightPx };
}

/** Within an hour the minute, within a week the day and the hour; in the reader's zone. */
function timeText(at: number, stepSeconds: number): string {
  const form: Intl.DateTimeFormatOptions =
    stepSeconds === 60 ? { hour: '2-digit', minute: '2-digit' } : { weekday: 'short', hour: '2-digit' };
  return new Date(at * 1000).toLocaleString(undefined, form);
}

/** When the pointed minute or hour began: in the reader's zone, and in UTC. */
function pointedText(at: number, stepSeconds: number): string {
  const utc = new Date(at * 1000).toISOString();
  return `${timeText(at, stepSeconds)} (${utc.slice(11, 16)} UTC)`;
}

/** Calls `point` with the index of the minute or hour under the pointer, and without one when it leaves. */
function draw(place: HTMLElement, traffic: Traffic, point: (index?: number) => void): uPlot {
  const style = getComputedStyle(place);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: colour('--muted'),
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { stroke: colour('--line'), width: 1 },
    font: `12px ${style.fontFamily}`,
  };
  return new uPlot(
    {
      ...sizeOf(place),
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      hooks: { setCursor: [({ cursor }) => point(cursor.idx ?? undefined)] },
      scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.05)] } },
      axes: [
        // Wide enough for the longest text.
        { ...axis, space: 80, values: (_, ticks) => ticks.map((at) => timeText(at, traffic.step_seconds)) },
        {
          ...axis,
          size: 64,
          values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick.toLocaleString() : '')),
        },
      ],
      series: [
        {},
        ...series.map(([name, token]) => ({
          label: name,
          stroke: colour(token),
          width: 2,
          points: { show: false },
        })),
      ],
    },
    [[...traffic.at], ...series.map(([name]) => [...traffic[name]])] as uPlot.AlignedData,
    place,
  );
}
