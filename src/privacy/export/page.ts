// A page of an export for the person whom it is about: HTML that needs nothing from elsewhere and runs nothing. It shows every field of
// every line, so a kind or a field that is new is shown too, under its own name.

export type ExportedLine = { readonly kind: string } & Readonly<Record<string, unknown>>;

export type PageOptions = {
  readonly at: Date;
  readonly number: number;
  /** Names of files beside the page. */
  readonly links: {
    readonly previous: string | undefined;
    readonly next: string | undefined;
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

const labels: Readonly<Record<string, string>> = {
  app_id: 'Environment',
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
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.5rem } p { max-width: 42rem }
article { border: 1px solid #d5d9de; border-radius: 6px; padding: .6rem .9rem; margin: .6rem 0; break-inside: avoid }
h3 { font-size: 1rem; margin: 0 0 .3rem; overflow-wrap: anywhere } time { font-weight: normal; color: #57606a; float: right }
dl { display: grid; grid-template-columns: minmax(8rem, 14rem) 1fr; gap: .15rem 1rem; margin: 0 }
dt { color: #57606a; overflow-wrap: anywhere } dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap }
`;

/** The page of some lines, part by part: by kind, and within a kind by time. */
export function* pageOf(
  lines: readonly ExportedLine[],
  { at, number, links }: PageOptions,
): Generator<string> {
  const end = lines.find(({ kind }) => kind === 'end');
  const byKind = new Map<string, ExportedLine[]>();
  for (const line of lines) {
    const its = byKind.get(line.kind);
    if (its !== undefined) its.push(line);
    else if (line !== end) byKind.set(line.kind, [line]);
  }
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
<h1>${title}</h1>
<p>Exported on ${shownTime(at.toISOString())}. All times are in UTC. The file ${links.lines} has the same as this page, for programs.</p>
${nav}`;
  for (const [kind, its] of byKind) yield* sectionOf(kind, its);
  if (end !== undefined)
    yield `<p>This is the end: ${end.records} ${end.records === 1 ? 'record' : 'records'} in all.</p>\n`;
  yield `${nav}</body>\n</html>\n`;
}

function* sectionOf(kind: string, lines: readonly ExportedLine[]): Generator<string> {
  const { title, text } = kinds[kind] ?? { title: kind, text: '' };
  yield `<section>\n<h2>${escaped(title)}</h2>\n<p>${text}</p>\n`;
  const timed = lines.map((line) => ({ line, time: timeOf(line) }));
  timed.sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
  for (const { line, time } of timed) yield articleOf(line, time);
  yield '</section>\n';
}

function timeOf({ time, failed_at, received_at }: ExportedLine): string {
  return String(time ?? failed_at ?? received_at ?? '');
}

function articleOf({ kind, event, time, columns, row, ...fields }: ExportedLine, shown: string): string {
  const head = [
    shown === '' ? '' : `<time>${escaped(shownTime(shown))}</time>`,
    typeof event === 'string' ? `<bdi>${escaped(event)}</bdi>` : '',
  ].join('');
  const pairs = { ...fields, ...(row === undefined ? {} : rowOf(columns, row)) };
  return `<article>${head === '' ? '' : `<h3>${head}&nbsp;</h3>`}${listOf(pairs, true)}</article>\n`;
}

/** The values of a record that was set aside, under the names of their columns. */
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

function listOf(fields: Readonly<Record<string, unknown>>, isOurs: boolean): string {
  const items = Object.entries(fields).flatMap(([name, value]) => {
    // Where nothing is. What the sender named and left empty is shown as empty.
    if (isOurs && (value === null || value === '')) return [];
    // What the sender named keeps its name.
    const label = `<dt><bdi>${escaped((isOurs && labels[name]) || name)}</bdi></dt>`;
    if (typeof value === 'object' && !Array.isArray(value)) {
      const inner = value as Readonly<Record<string, unknown>>;
      return Object.keys(inner).length === 0 ? [] : [`${label}<dd>${listOf(inner, false)}</dd>`];
    }
    const isTime = isOurs && name.endsWith('_at');
    const text = Array.isArray(value) ? value.join(', ') : String(value);
    return [`${label}<dd><bdi>${escaped(isTime ? shownTime(text) : text)}</bdi></dd>`];
  });
  return `<dl>${items.join('')}</dl>`;
}

/** `2026-03-01T12:30:00.250Z` as a person writes it. */
function shownTime(iso: string): string {
  return iso.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z$/, '$1 $2');
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
