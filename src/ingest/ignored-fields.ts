// Fields of a request that no schema knows. They are ignored, so that newer clients keep working; but a misspelt `propertys` would go
// unnoticed if the answer did not name it. Plain events have no such fields and do not come here.

import { ignoredFields } from '../contract/limits.js';
import type { Document } from '../parsing/document.js';
import type { Steps } from '../parsing/steps.js';
import type { RecordKind } from './record-kind.js';

/** The unknown fields of one request. */
export type IgnoredFields = {
  count: number;
  /** The first distinct names. */
  readonly names: Set<string>;
};

export function noIgnoredFields(): IgnoredFields {
  return { count: 0, names: new Set() };
}

/** The unknown fields of a request with one or many records of this kind, one record a step. Its document is an object. */
export function* ignoredOf(
  { fields, bulk }: Pick<RecordKind, 'fields' | 'bulk'>,
  { value, isLarge }: Pick<Document, 'value' | 'isLarge'>,
): Steps<IgnoredFields> {
  const ignored = noIgnoredFields();
  const request = value as Readonly<Record<string, unknown>>;
  const list = bulk !== undefined && Object.hasOwn(request, bulk.field) ? bulk.field : undefined;
  const elements = list === undefined ? [] : request[list];
  for (const name in request) {
    if (name !== 'app_id' && name !== list && (list !== undefined || !fields.has(name))) add(name, ignored);
  }
  for (const element of Array.isArray(elements) ? elements : []) {
    if (isLarge) yield;
    addIgnored(element, fields, ignored);
  }
  return ignored;
}

/** The names of the fields that a schema knows, and further ones. */
export function fieldNames(
  schema: { readonly properties: object },
  ...more: readonly string[]
): ReadonlySet<string> {
  return new Set([...Object.keys(schema.properties), ...more]);
}

/** Adds the unknown fields of an object; anything else has none. */
export function addIgnored(value: unknown, known: ReadonlySet<string>, ignored: IgnoredFields): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
  for (const name in value) if (!known.has(name)) add(name, ignored);
}

function add(name: string, ignored: IgnoredFields): void {
  ignored.count += 1;
  // One name above the maximum shows that there are more.
  if (ignored.names.size <= ignoredFields.namesMax) ignored.names.add(name);
}

/** The names as the value of a header: bounded, and percent-encoded where a header needs it. */
export function textOfIgnored({ names }: IgnoredFields): string {
  const all = Array.from(names, (name) =>
    encodeURIComponent(name.slice(0, ignoredFields.nameMax).toWellFormed()),
  );
  const named = all.slice(0, ignoredFields.namesMax);
  return [...named, ...(all.length > named.length ? ['...'] : [])].join(', ');
}
