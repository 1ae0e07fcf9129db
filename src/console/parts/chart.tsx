// A chart of counts over an hour or a week. It is drawn on a canvas, which screen readers cannot read, so the counts are also there as
// text, and can be copied as CSV.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { csvOf } from '../../parsing/csv/write.js';
import { Copy } from './parts.js';

export type Line = {
  readonly name: string;
  readonly colour: Colour;
  readonly counts: readonly number[];
};
export type Colour = 'good' | 'accent' | 'warn' | 'bad' | 'plain';

type Lines = {
  /** When each step begins, in seconds since 1970. */
  readonly at: readonly number[];
  readonly step_seconds: number;
  readonly lines: readonly Line[];
};

const heightPx = 220;
/** Space for the ticks and gaps beside the numbers of the axis. */
const besideNumbersPx = 20;

/** A chart. `shows`: what the lines count, in words. It is redrawn when `of` is another object. */
export function Chart<Of>({
  shows,
  of,
  linesOf,
}: {
  readonly shows: string;
  readonly of: Of & Omit<Lines, 'lines'>;
  readonly linesOf: (of: Of) => readonly Line[];
}) {
  const lines = useMemo(() => linesOf(of), [of]);
  const { at: steps, step_seconds } = of;
  const place = useRef<HTMLDivElement>(null);
  const [pointed, setPointed] = useState<number | undefined>(undefined);
  useEffect(() => {
    const { current } = place;
    if (current === null) return;
    const drawn = { at: steps, step_seconds, lines };
    let plot = draw(current, drawn, setPointed);
    const again = () => {
      plot.destroy();
      plot = draw(current, drawn, setPointed);
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
  }, [lines]);
  const sums = lines.map(
    ({ name, counts }) => `${counts.reduce((sum, count) => sum + count, 0).toLocaleString()} ${name}`,
  );
  const at = pointed === undefined ? undefined : steps[pointed];
  const shown =
    pointed === undefined || at === undefined
      ? sums
      : lines.map(({ name, counts }) => `${(counts[pointed] ?? 0).toLocaleString()} ${name}`);
  const csv = csvOf([
    ['begin', ...lines.map(({ name }) => name)],
    ...steps.map((begin, index) => [
      new Date(begin * 1000).toISOString(),
      ...lines.map(({ counts }) => counts[index] ?? 0),
    ]),
  ]);
  return (
    <figure class="chart">
      <div ref={place} class="plot" role="img" aria-label={`${shows}: ${sums.join(', ')}`} />
      <figcaption>
        <label class="step">
          <span class="sr">{`${shows}: which ${step_seconds === 60 ? 'minute' : 'hour'}`}</span>
          <input
            type="range"
            min={0}
            max={Math.max(0, steps.length - 1)}
            value={pointed ?? steps.length - 1}
            aria-valuetext={
              at === undefined ? 'all of them' : `${pointedText(at, step_seconds)}: ${shown.join(', ')}`
            }
            onInput={(event) => setPointed(Number(event.currentTarget.value))}
            onBlur={() => setPointed(undefined)}
          />
        </label>
        <ul class="legend">
          {lines.map(({ name, colour }, index) => (
            <li key={name} class={colour}>
              {shown[index]}
            </li>
          ))}
          <li class="at muted">{at === undefined ? 'in all' : `from ${pointedText(at, step_seconds)}`}</li>
        </ul>
        <Copy text={csv} label="Copy as CSV:" what={shows} />
      </figcaption>
    </figure>
  );
}

function sizeOf(place: HTMLElement) {
  return { width: Math.max(200, place.clientWidth), height: heightPx };
}

/** A time on the axis, in the reader's zone: the minute in a chart of an hour, the day and hour in a chart of a week. */
function timeText(at: number, stepSeconds: number, more: Intl.DateTimeFormatOptions = {}): string {
  const form: Intl.DateTimeFormatOptions =
    stepSeconds === 60 ? { hour: '2-digit', minute: '2-digit' } : { weekday: 'short', hour: '2-digit' };
  return new Date(at * 1000).toLocaleString(undefined, { ...form, ...more });
}

/** When the step under the pointer began: in the reader's zone, where that may not be a full hour, and in UTC. */
function pointedText(at: number, stepSeconds: number): string {
  const utc = new Date(at * 1000).toISOString();
  return `${timeText(at, stepSeconds, { minute: '2-digit' })} (${utc.slice(11, 16)} UTC)`;
}

/** Splits a line in two: the counts of completed steps and, drawn dashed, the piece to the current step, whose count still grows. */
function untilNow(counts: readonly number[], stepSeconds: number): readonly (number | null)[][] {
  // Steps of a minute are sent only once they are completed.
  if (stepSeconds === 60) return [[...counts], counts.map(() => null)];
  const last = counts.length - 1;
  return [
    counts.map((count, index) => (index === last ? null : count)),
    counts.map((count, index) => (index < last - 1 ? null : count)),
  ];
}

/**
 * Calls `point` with the index of the step under the pointer, and with undefined when the pointer leaves. It is not called before the
 * pointer has entered, so that a step chosen by keyboard survives a redraw.
 */
function draw(
  place: HTMLElement,
  { at: steps, step_seconds, lines }: Lines,
  point: (index?: number) => void,
): uPlot {
  const style = getComputedStyle(place);
  let isPointed = false;
  const onCursor = ({ cursor: { idx } }: uPlot) => {
    if (idx == null && !isPointed) return;
    isPointed = idx != null;
    point(idx ?? undefined);
  };
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
      // Room for the last time on the axis.
      padding: [null, 36, null, null],
      cursor: { y: false, drag: { x: false, y: false } },
      hooks: { setCursor: [onCursor] },
      scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.05)] } },
      axes: [
        // Wide enough for the longest text.
        { ...axis, space: 80, size: 30, values: (_, ticks) => ticks.map((at) => timeText(at, step_seconds)) },
        {
          ...axis,
          size: ({ ctx }, texts) => {
            ctx.font = axis.font;
            const widths = (texts ?? []).map((text) => ctx.measureText(text).width);
            return Math.max(64, Math.ceil(Math.max(0, ...widths)) + besideNumbersPx);
          },
          values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick.toLocaleString() : '')),
        },
      ],
      series: [
        {},
        ...lines.flatMap((line, index) => {
          const series = {
            label: line.name,
            // A line that is 0 throughout would cover other lines where they are 0.
            show: index === 0 || line.counts.some((count) => count > 0),
            stroke: colour(`--${line.colour}`),
            width: 2,
            points: { show: false },
          };
          return [series, { ...series, dash: [4, 4] }];
        }),
      ],
    },
    [[...steps], ...lines.flatMap(({ counts }) => untilNow(counts, step_seconds))] as uPlot.AlignedData,
    place,
  );
}
