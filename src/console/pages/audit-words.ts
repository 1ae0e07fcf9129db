// Puts a line of the audit log into words.

import { amountText, dayText, durationText } from '../parts/parts.js';

const outcomes: Readonly<Record<string, string>> = {
  done: 'done',
  refused: 'refused',
  begun: 'begun, end not known',
  unknown: 'failed, perhaps midway',
};

export function outcomeText(outcome: string): string {
  return outcomes[outcome] ?? outcome;
}

const amount = (one: string, many?: string) => (count: unknown) => amountText(Number(count), one, many);

/** Each detail of an action in words, by the detail's name. */
const texts: Readonly<Record<string, (value: unknown) => string>> = {
  name: (name) => `“${name}”`,
  email: String,
  role: (role) => `as ${role}`,
  personId: (id) => `person ${id}`,
  users: amount('user'),
  users_found: (count) => `${Number(count).toLocaleString()} found`,
  suppress: () => 'suppressed, too',
  erase: (when) => (when === 'now' ? 'erased at once' : 'erased together with others'),
  reference: (reference) => `“${reference}”`,
  received_on: (day) => `received on ${dayText(String(day))}`,
  due_on: (day) => `due on ${dayText(String(day))}`,
  due_days: (days) => `cases are due after ${days} days`,
  result: (result) => `“${result}”`,
  proposed_by: (who) => `proposed by ${who}`,
  proposal_id: (id) => `proposal ${String(id).slice(0, 8)}`,
  confirm_from: (count) =>
    count === 'none'
      ? 'nobody confirms deletions'
      : `a second person confirms deletions from ${count} users on`,
  second_factor: (wanted) => `second factor ${wanted}`,
  case_id: (id) => `case ${String(id).slice(0, 8)}`,
  records: amount('record'),
  user_export_id: (id) => `export ${String(id).slice(0, 8)}`,
  overlapMs: (ms) => `the old one ends after ${durationText(Number(ms) / 1000)}`,
  main: () => 'is the main one now',
  validation: (validation) => `validation ${validation}`,
  limits: (limits) =>
    Object.entries(limits as Readonly<Record<string, unknown>>)
      .map(([name, value]) => `limit ${name.replaceAll('_', ' ')} ${value}`)
      .join(', '),
  writeKey: (writeKey) => `write keys ${writeKey}`,
  origins: (origins) => `pages of ${listText(origins) || 'no site'}`,
  importUntilMs: (ms) =>
    ms === 'none' ? 'no imports' : `imports until ${new Date(Number(ms)).toLocaleDateString()}`,
  retainDays: (days) => (days === 'none' ? 'events kept for ever' : `events kept for ${days} days`),
  allowed_identities: (count) => `${amount('word')(count)} allowed as identities`,
  disallowed_identities: (count) => `${amount('word')(count)} no longer allowed as identities`,
  environments: (names) => `with ${listText(names)}`,
  base: (base) => `on top of ${base}`,
  keepDays: (days) => `kept for ${days} days`,
  shards: (shards) => `shards ${listText(shards)}`,
  server: (server) => `to server ${server}`,
};

function listText(value: unknown): string {
  return Array.isArray(value) ? value.join(', ') : String(value);
}

export function detailText(name: string, value: unknown): string {
  if (Object.hasOwn(texts, name)) return texts[name]?.(value) ?? '';
  return `${name.replaceAll('_', ' ')} ${typeof value === 'string' ? value : JSON.stringify(value)}`;
}
