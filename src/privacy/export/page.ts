// A page of an export for the person whom it is about: HTML without external resources or scripts. It shows every field of every line, so
// that new kinds and fields appear too, under their own names.

import { grouped } from '../../batches.js';
import type { Times } from './times.js';

export type ExportedLine = { readonly kind: string } & Readonly<Record<string, unknown>>;

export type PageOptions = {
  readonly at: Date;
  readonly number: number;
  /** Writes times as the reader wants them. */
  readonly times: Times;
  readonly environments: ReadonlyMap<string, string>;
  /** Names of files beside the page. */
  readonly links: {
    readonly previous: string | undefined;
    readonly next: string | undefined;
    readonly table: string;
    readonly lines: string;
  };
};

const kinds: Readonly<Record<string, { readonly title: string; readonly text: string }>> = {
  user: {
    title: 'Who you are in this data',
    text: 'The names and numbers under which the records are kept.',
  },
  user_identity: {
    title: 'Identifications',
    text: 'When an anonymous number, such as that of a browser or a phone, was recognised as yours.',
  },
  user_properties: { title: 'Properties', text: 'What was noted about you.' },
  event: { title: 'Events', text: 'What was recorded of what you did, or of what was done for you.' },
  failed_record: { title: 'Records set aside', text: 'Records that were received and could not be filed.' },
};

const order = Object.keys(kinds);

const labels: Readonly<Record<string, string>> = {
  identity: 'Identity',
  user_id: 'Anonymous number',
  user_ids: 'Anonymous numbers',
  event: 'Event',
  event_id: 'Number of the record',
  session_id: 'Session',
  properties: 'Properties',
  received_at: 'Received',
  table: 'Kind of record',
  failed_at: 'Set aside',
};

const style = `
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 64rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.3rem; margin-top: 2.5rem } h3 { font-size: 1.05rem; margin: 1.5rem 0 0 } p { max-width: 42rem; margin: .4rem 0 }
table { width: 100%; border-collapse: collapse } tr { break-inside: avoid }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #d5d9de; text-align: left; vertical-align: top; overflow-wrap: anywhere }
th, dt { color: #57606a; font-weight: normal } time { white-space: nowrap }
dl { display: grid; grid-template-columns: minmax(5rem, 12rem) 1fr; gap: .1rem .8rem; margin: 0 }
dt { overflow-wrap: anywhere } dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap }
@media (max-width: 40rem) { thead { display: none } tr, td { display: block } td { border: 0; padding: .1rem 0 } tr { border-bottom: 1px solid #d5d9de } }
`;

/** Yields the page of these lines in parts, grouped by environment, then kind, and sorted by time. */
export function* pageOf(lines: readonly ExportedLine[], options: PageOptions): Generator<string> {
  const { at, number, links, times, environments } = options;
  const end = lines.find(({ kind }) => kind === 'end');
  const way = [
    links.previous === undefined ? [] : `<a href="${links.previous}">Previous page</a>`,
    links.next === undefined ? [] : `<a href="${links.next}">Next page</a>`,
  ].flat();
  const nav = way.length === 0 ? '' : `<nav><p>${way.join(' · ')}</p></nav>\n`;
  const title = way.length === 0 ? 'Your data' : `Your data, page ${number}`;
  yield `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>${title}</title>
<style>${style}</style>
</head>
<body>
<main>
<h1>${title}</h1>
<p>Exported on ${times.shown(at.toISOString())}. All times are of the zone ${escaped(times.zone)}. The same is in ${links.table}, for spreadsheets, and in ${links.lines}, for programs.</p>
${nav}`;
  for (const [appId, ofEnvironment] of grouped(
    lines.filter((line) => line !== end),
    ({ app_id }) => String(app_id ?? ''),
  )) {
    yield `<section>\n<h2>${escaped(environments.get(appId) ?? `Environment ${appId}`)}</h2>\n`;
    const ofKinds = [...grouped(ofEnvironment, (line) => line.kind)];
    ofKinds.sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
    for (const [kind, its] of ofKinds) yield* tableOf(kind, its, times);
    yield '</section>\n';
  }
  if (end !== undefined)
    yield `<p>This is the end: ${end.records} ${end.records === 1 ? 'record' : 'records'} in all.</p>\n`;
  yield `${nav}</main>\n</body>\n</html>\n`;
}

function* tableOf(kind: string, lines: readonly ExportedLine[], times: Times): Generator<string> {
  const { title, text } = kinds[kind] ?? { title: kind, text: '' };
  const timed = lines.map((line) => ({ line, time: timeOf(line) }));
  timed.sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
  const hasTime = timed.some(({ time }) => time !== '');
  const hasEvent = lines.some(({ event }) => typeof event === 'string');
  const heads = [...(hasTime ? ['When'] : []), ...(hasEvent ? ['Event'] : []), 'Known as', 'Details'];
  yield `<h3>${escaped(title)}</h3>\n<p>${text}</p>\n<table>\n<thead><tr>${heads.map((head) => `<th>${head}</th>`).join('')}</tr></thead>\n<tbody>\n`;
  for (const { line, time } of timed) {
    const { kind: _, app_id: __, event, time: ___, identity, user_id, columns, row, ...fields } = line;
    const { identity: inRow, ...others } = row === undefined ? {} : rowOf(columns, row);
    const details = { ...fields, ...others, ...(inRow === identity ? {} : { identity: inRow }) };
    const cells = [
      ...(hasTime ? [time === '' ? '' : timeTag(time, times)] : []),
      ...(hasEvent ? [typeof event === 'string' ? `<bdi>${escaped(event)}</bdi>` : ''] : []),
      knownAs(identity, user_id),
      listOf(details, true, times),
    ];
    yield `<tr>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>\n`;
  }
  yield '</tbody>\n</table>\n';
}

function knownAs(identity: unknown, userId: unknown): string {
  const names = [
    ...(typeof identity === 'string' && identity !== '' ? [escaped(identity)] : []),
    ...(userId == null || userId === '' ? [] : [`number ${escaped(String(userId))}`]),
  ];
  return names.map((name) => `<bdi>${name}</bdi>`).join('<br>');
}

function timeOf({ time, failed_at, received_at }: ExportedLine): string {
  return String(time ?? failed_at ?? received_at ?? '');
}

function timeTag(iso: string, times: Times): string {
  return `<time datetime="${escaped(iso)}">${escaped(times.shown(iso))}</time>`;
}

/** The values of a failed row, under the names of their columns. */
function rowOf(columns: unknown, row: unknown): Readonly<Record<string, unknown>> {
  const [names, values] = [columns, typeof row === 'string' ? parsed(row) : row];
  if (!Array.isArray(names) || !Array.isArray(values)) return { row };
  return Object.fromEntries(values.map((value, index) => [String(names[index] ?? index), value]));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The event_id of records that were sent without an idempotency key. */
const noNumber = '00000000-0000-0000-0000-000000000000';

function listOf(fields: Readonly<Record<string, unknown>>, isOurs: boolean, times: Times): string {
  const items = Object.entries(fields).flatMap(([name, value]) => {
    // Our own fields are left out when empty. Fields that the sender named are shown even then.
    if (isOurs && (value === null || value === undefined || value === '' || value === noNumber)) return [];
    // Fields that the sender named keep their names.
    const label = `<dt><bdi>${escaped((isOurs && labels[name]) || name)}</bdi></dt>`;
    if (typeof value === 'object' && !Array.isArray(value)) {
      const inner = value as Readonly<Record<string, unknown>>;
      return Object.keys(inner).length === 0 ? [] : [`${label}<dd>${listOf(inner, false, times)}</dd>`];
    }
    const isTime = isOurs && name.endsWith('_at');
    const text = Array.isArray(value) ? value.join(', ') : String(value);
    return [`${label}<dd><bdi>${isTime ? timeTag(text, times) : escaped(text)}</bdi></dd>`];
  });
  return items.length === 0 ? '' : `<dl>${items.join('')}</dl>`;
}

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => entities[character] as string);
}
