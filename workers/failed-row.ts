// What is kept of a row that ClickHouse refused. A row that names a user is kept whole, under that user, so that a deletion finds
// it. No deletion would find a row that names no user, although its text may hold a user's data. So only the line, reason, length,
// hash and event_id of such a row are kept. The event_id says that its key is claimed.

import { createHash } from 'node:crypto';
import { codeOfFault } from '../src/clickhouse/client.js';
import { refusalText } from '../src/clickhouse/error-texts.js';
import type { SegmentName } from '../src/clickhouse/store.js';
import { columnsOf, columnValue, eventIdInRow } from '../src/clickhouse/tables.js';
import { lengths } from '../src/contract/limits.js';
import type { TableVersion } from '../src/contract/records.js';
import { isUserId } from '../src/contract/user-id.js';
import { isLongerThan } from '../src/parsing/code-points.js';

/** A row of a segment, by its line there, and why it was refused. */
export type BadRow = { readonly line: number; readonly row: Buffer; readonly error: unknown };

/** The row of failed_events that is kept for it. */
export function failedRowOf(segment: SegmentName, { line, row, error }: BadRow) {
  const { appId, userId, identity } = userOfRow(segment.table, row);
  const isNamed = appId !== '' && (userId !== null || identity !== '');
  return {
    table_name: segment.table,
    segment: segment.number,
    line,
    app_id: appId || appIdIn(row),
    ...(isNamed ? { user_id: userId, identity, row: row.toString('utf8') } : withoutText(row)),
    error_code: codeOfFault(error),
    error: refusalText(segment.table, error),
  };
}

/** For a row that cannot be parsed: every row begins with its environment. */
function appIdIn(row: Buffer): string {
  return /^\["(\d+)"/.exec(row.toString('latin1', 0, 64))?.[1] ?? '';
}

const eventIdForm = new RegExp(eventIdInRow);

function withoutText(row: Buffer) {
  const [, eventId = ''] = eventIdForm.exec(row.toString('latin1')) ?? [];
  return {
    user_id: null,
    identity: '',
    row: '',
    text_bytes: row.length,
    text_hash: createHash('sha256').update(row).digest('hex'),
    event_id: eventId,
  };
}

type RowUser = { readonly appId: string; readonly userId: string | null; readonly identity: string };

/** The user whom a row names, in the form that deletions use; empty and null if it names none. */
function userOfRow(table: TableVersion, row: Buffer): RowUser {
  const values = valuesOf(row);
  // With a wrong number of values, nothing says which of them is the user.
  if (values?.length !== columnsOf(table).length) return { appId: '', userId: null, identity: '' };
  const [appId, userId, identity] = (['app_id', 'user_id', 'identity'] as const).map((column) =>
    columnValue(table, values, column),
  );
  return {
    appId: typeof appId === 'string' && /^\d+$/.test(appId) ? appId : '',
    userId: isUserId(String(userId)) ? String(userId) : null,
    identity: typeof identity === 'string' && mayBeNamed(identity) ? identity : '',
  };
}

function valuesOf(row: Buffer): unknown[] | undefined {
  try {
    const values: unknown = JSON.parse(row.toString('utf8'));
    return Array.isArray(values) ? values : undefined;
  } catch {
    return undefined;
  }
}

function mayBeNamed(identity: string): boolean {
  return identity.isWellFormed() && !isLongerThan(identity, lengths.identityMax);
}
