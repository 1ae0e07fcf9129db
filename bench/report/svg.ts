// Renders a Vega-Lite specification as an SVG file with its own background. Its colours follow the reader's preference for light or dark
// pages.

import type { TopLevelSpec } from 'vega-lite';

/** The colours of the plots, and what each becomes on a dark page. */
const ink = { text: '#24292f', faint: '#57606a', grid: '#d8dee4', paper: '#ffffff' } as const;
const darkInk = { text: '#e6edf3', faint: '#9ba5b0', grid: '#30363d', paper: '#0d1117' } as const;

/** Colour-blind readers can distinguish these, and they stand out from both backgrounds. */
const colours = ['#3b8fd6', '#dd6b3f', '#2fa37c', '#c9932b', '#b565a7', '#7a86d1'] as const;

const config: TopLevelSpec['config'] = {
  background: ink.paper,
  padding: 14,
  font: 'system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif',
  title: { anchor: 'start', fontSize: 14, fontWeight: 600, color: ink.text, offset: 12 },
  axis: {
    labelColor: ink.faint,
    titleColor: ink.faint,
    titleFontWeight: 'normal',
    labelFontSize: 11,
    titleFontSize: 11,
    gridColor: ink.grid,
    domainColor: ink.grid,
    tickColor: ink.grid,
    labelLimit: 320,
  },
  legend: { labelColor: ink.text, titleColor: ink.faint, orient: 'bottom', title: null, labelFontSize: 11 },
  view: { stroke: null },
  range: { category: [...colours] },
  text: { color: ink.text, fontSize: 11 },
};

/** Settles with the text of the file. Throws Vega's error if the specification is wrong. */
export async function renderSvg(spec: TopLevelSpec): Promise<string> {
  // Loaded on demand, since loading takes a second.
  const [{ parse, View }, { compile }] = await Promise.all([import('vega'), import('vega-lite')]);
  const compiled = compile({ ...spec, config } as TopLevelSpec);
  const view = new View(parse(compiled.spec), { renderer: 'none' });
  const svg = await view.toSVG();
  view.finalize();
  return `${svg.replace(/(<svg [^>]*>)/, `$1${darkStyle()}`)}\n`;
}

/** The rules override the drawing's attributes, so the drawing itself stays as it is. */
function darkStyle(): string {
  const rules = (Object.keys(ink) as (keyof typeof ink)[]).flatMap((name) =>
    ['fill', 'stroke'].map((attribute) => `[${attribute}="${ink[name]}"]{${attribute}:${darkInk[name]}}`),
  );
  return `<style>@media (prefers-color-scheme:dark){${rules.join('')}}</style>`;
}
