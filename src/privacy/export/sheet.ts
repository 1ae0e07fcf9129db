// The lines of a page as CSV, for spreadsheets: one row per line, and one column per property as long as a sheet has room for them.

import { userExports } from '../../contract/limits.js';
import { csvOf } from '../../parsing/csv/write.js';
import type { ExportedLine } from './page.js';
import type { Times } from './times.js';

const plain = ['time', 'event', 'identity', 'user_id'];
const rest = 'other properties';

/** The byte order mark, by which spreadsheets recognise the encoding. */
const mark = '\uFEFF';

export function* sheetOf(
  lines: readonly ExportedLine[],
  times: Times,
  environments: ReadonlyMap<string, string>,
): Generator<string> {
  const records = lines.filter(({ kind }) => kind !== 'end');
  const fields = new Set(plain);
  const properties = new Set<string>();
  for (const { kind: _, app_id: __, properties: own, ...others } of records) {
    for (const name of Object.keys(others)) fields.add(name);
    for (const name of Object.keys(propertiesOf(own)))
      if (properties.size < userExports.propertyColumnsMax) properties.add(name);
  }
  const head = ['environment', 'kind', ...fields, ...[...properties].map((name) => `property ${name}`), rest];
  yield `${mark}${csvOf([head])}\r\n`;
  for (const { kind, app_id: appId, properties: own, ...others } of records) {
    const all = propertiesOf(own);
    const left = Object.entries(all).filter(([name]) => !properties.has(name));
    const row = [
      environments.get(String(appId)) ?? String(appId ?? ''),
      kind,
      ...[...fields].map((name) => {
        const text = textOf((others as Readonly<Record<string, unknown>>)[name]);
        return name === 'time' || name.endsWith('_at') ? times.shown(text) : text;
      }),
      // Properties keep the names under which they were sent.
      ...[...properties].map((name) => textOf(Object.hasOwn(all, name) ? all[name] : undefined)),
      left.length === 0 ? '' : JSON.stringify(Object.fromEntries(left)),
    ];
    yield `${csvOf([row])}\r\n`;
  }
}

function propertiesOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return value;
  return Array.isArray(value) && value.every((each) => typeof each === 'string')
    ? value.join(', ')
    : JSON.stringify(value);
}
