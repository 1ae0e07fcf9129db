// The TypeBox schemas of the answers about users' rights: deletions with their evidence and certificates, suppressions, and exports.
// Nothing checks answers on their way out, as for those in answers.ts.

import { type DeletionState, deletionStates } from './deletion-states.js';
import { type ColumnType, exportedKinds, recordColumns, type TableName, tables } from './records.js';
import {
  anyFields,
  anyOf,
  count,
  either,
  flag,
  integer,
  listOf,
  literal,
  object,
  objects,
  optional,
  orNull,
  type Schema,
  text,
} from './typebox.js';

const deletionStatus = {
  deletion_request_id: text('Names the request.'),
  status: either(
    ['pending', 'complete'],
    'complete: every table was counted and holds nothing of the users. This is final.',
  ),
};

export const deletionSubmittedSchema = object({
  deletion_request_location: text('The URL of its status.'),
  ...deletionStatus,
});

export const deletionProposedSchema = object({
  status: literal('awaits_confirmation'),
  proposal_id: text(),
  users: integer({ minimum: 1 }),
  ends_at: text('Until then another person may submit the same list.', { format: 'date-time' }),
});

const foundRows = object({
  app_id: text(),
  table: text(),
  rows: integer({ minimum: 1 }),
});

/** What a deletion would find. */
export const deletionPreviewSchema = object({
  dry_run: literal(true),
  users: integer('How many different users were named.', { minimum: 1 }),
  users_found: count('How many of them have any rows.'),
  rows: count('How many rows these have.'),
  found: listOf(foundRows, 'The same by environment and table.'),
  unclear: objects('Users of whom nothing was found, or for whom there are similar identities.', {
    place: count('Position in your list, from 0.'),
    found: flag(),
    rows: count(),
    similar: count('How many other identities look like this one.'),
  }),
});

const pendingStates = (Object.keys(deletionStates) as DeletionState[]).filter(
  (state) => state !== 'complete',
);
const statesInWords = pendingStates.map((state) => `| \`${state}\` | ${deletionStates[state]} |`).join('\n');

const whenBackupsEnd =
  'When the last backup that may still hold its users expires, if there is one. A restore deletes them again.';

export const deletionStatusSchema = object({
  ...deletionStatus,
  state: optional(
    either(
      pendingStates,
      `While it is pending: what it is doing or waiting for. With \`targets_lost\` and \`ended\` it stays pending forever.\n\n| State | Meaning |\n|---|---|\n${statesInWords}`,
    ),
  ),
  message: optional(text('While it is pending: the state in words, for people; the wording may change.')),
  submitted_at: text('When it was submitted.'),
  reference: optional(text('Your own name for it, if you gave it one.')),
  users: integer('How many different users it names.', { minimum: 1 }),
  hidden_at: optional(text('Since when no query shows its users.')),
  completed_at: optional(text('When it was complete.')),
  backups_end_at: optional(text(whenBackupsEnd)),
  users_found: optional(
    count('Once it is complete: how many of the named users had any rows, in any environment.'),
  ),
  evidence_until: optional(text('Once it is complete: until when the counts of each named user are kept.')),
  callback: optional(
    object('Once it is complete, if the account has a callback: the attempts to call it.', {
      state: either(['pending', 'delivered', 'failed']),
      tries: objects('The oldest first.', {
        at: text(),
        answer: optional(integer('The HTTP status of the answer.')),
        error: optional(text('Why there was no answer.')),
      }),
    }),
  ),
  rows_deleted: optional(
    count(
      'Once it is complete: how many rows it found and deleted. A row that another request also names counts in both if they were deleted together.',
    ),
  ),
});

const calledAccount = text('The account that is called.');
const { callback: _, state: __, message: ___, ...statusWhenComplete } = deletionStatusSchema.properties;

/** The body of a call: a deletion is complete, or the callback is being tested. */
export const callSchemas = {
  complete: object({
    type: literal('deletion.complete'),
    account_id: calledAccount,
    ...statusWhenComplete,
    status: literal('complete'),
  }),
  test: object({ type: literal('test'), account_id: calledAccount }),
} as const;

/** The answer to a submission of suppressed users, once it is in force. */
export const suppressedSchema = object({
  users: integer('How many different users the request names.'),
  suppress: flag('As in the request.'),
});

/** What is known of one user, or of all users of the account. */
export const suppressionSchemas = {
  ofUser: object({
    suppressed: flag('Whether the user is suppressed: their records are not stored.'),
    since: optional(text('Since when.', { format: 'date-time' })),
    app_ids: optional(
      listOf(
        text(),
        'Only if the user is not suppressed everywhere: the environments in which they are merged with a suppressed user.',
      ),
    ),
  }),
  counts: object({
    users: integer('How many users are suppressed, as requests named them.'),
    names: integer('How many identities and user_ids these have, including those of users merged with them.'),
    records: integer('How many records about them were answered 200 and not stored.'),
  }),
} as const;

/** Whether users are suppressed, in the order asked. */
export const suppressionLookupSchema = object({ users: listOf(suppressionSchemas.ofUser) });

/** What a deletion has done, signed by the deployment. */
export const deletionCertificateSchema = object({
  certificate: object('What was counted. It names no user.', {
    type: literal('sluice-deletion-1'),
    deletion_request_id: text(),
    account_id: text(),
    app_id: text('The environment whose API key submitted it; without a key, the main environment.'),
    key_created_at: optional(text('When that key was made.')),
    submitted_by: optional(
      either(
        ['person', 'admin_token', 'program_key'],
        'Only without an API key: a person in the console, or a program with ADMIN_TOKEN or a key of its own.',
      ),
    ),
    reference: optional(text()),
    submitted_at: text(),
    hidden_at: optional(text('Since when no query showed them.')),
    verified_at: text('When every table was counted and held nothing.'),
    completed_at: text(),
    backups_end_at: optional(text(whenBackupsEnd)),
    users: integer({ minimum: 1 }),
    users_found: optional(count()),
    rows_deleted: count(),
    found: listOf(foundRows),
    tables_counted: optional(listOf(text())),
    statement: optional(text('What the count has shown, in words.')),
  }),
  signature: object({
    algorithm: literal('Ed25519'),
    key_id: text('The key, as the endpoint signing_key names it.'),
    value: text(
      'The signature, in base64, of the certificate as canonical JSON (RFC 8785: no white space, names sorted) in UTF-8.',
    ),
  }),
});

/** The public part of the deployment's key. */
export const signingKeySchema = object({
  algorithm: literal('Ed25519'),
  key_id: text('The first 16 digits of the SHA-256 of the key in DER.'),
  public_key: text('SubjectPublicKeyInfo in PEM.'),
});

const countsOfUser = {
  found: flag('Whether the user had any rows.'),
  rows: count(
    'How many rows the whole merged user had in all environments. A row of two named users counts for both.',
  ),
  similar: count(
    'How many other identities of the account differ from this one only in case or in surrounding white space; they were deleted only if they were named themselves.',
  ),
};

/** What was counted for each user that a deletion named, without the user. */
export const deletionUsersSchema = object({
  users: objects('Every different user, in the order of the submitted list.', {
    place: count('The first position of the user in the submitted list, from 0.'),
    ...countsOfUser,
  }),
  cursor: optional(text('For the next page. Absent on the last page.')),
});

/** The same for users whom the caller names. */
export const deletionLookupSchema = object({
  users: objects('In the order asked.', {
    ...countsOfUser,
    named: optional(literal(false, 'Only if the deletion did not name this user: nothing was counted.')),
  }),
});

/** A page of the account's requests. */
export const deletionListSchema = object({
  deletions: listOf(deletionStatusSchema, 'The newest first.'),
  cursor: optional(
    text('For the next page. Absent on the last page; earlier pages may have few requests, or none.'),
  ),
});

/** An export, submitted or asked about. */
export const userExportSchema = object({
  user_export_location: text('The URL of its status; with /data appended, the URL of its data.'),
  user_export_id: text('Names the export.'),
  status: either(
    ['pending', 'complete'],
    'complete: all records of the export can be read. This state is final; after 24 hours the export is no longer found.',
  ),
});

const exportUserId = orNull(
  text(),
  'In plain decimal form; null when the record came with an identity alone.',
);
/** The schemas of the values in a line of an export, by the type of their column. */
const exportedColumns = {
  text: text(),
  event_id: text(
    'Made from the idempotency key or the id of a message; begins with 32 zero bits if there was none.',
  ),
  user_id: text(),
  optional_user_id: exportUserId,
  time: text('When it happened, in UTC.'),
  properties: anyFields(text()),
} satisfies Readonly<Record<ColumnType, Schema>>;
/** Columns with a description of their own. */
const exportedByName = {
  app_id: text('The environment.'),
  identity: text('Empty when the record came with a user_id alone.'),
};

function exportedRecord(table: TableName) {
  const described: Readonly<Record<string, Schema>> = exportedByName;
  const { kind, description } = exportedKinds[table];
  const columns = Object.entries<ColumnType>(recordColumns[table]).map(([name, type]) => [
    name,
    described[name] ?? exportedColumns[type],
  ]);
  return object(description, {
    kind: literal(kind),
    ...(Object.fromEntries(columns) as Readonly<Record<string, Schema>>),
    received_at: text('When it was accepted, in UTC.'),
  });
}

/** The parameter `format` of a download: lines, which is the default, or an archive with pages to read. */
export const exportFormats = ['ndjson', 'zip'] as const;
export type ExportFormat = (typeof exportFormats)[number];

export const exportLineSchema = anyOf([
  object('A user who was merged: the identity, and the user_ids that were merged into it.', {
    kind: literal('user'),
    app_id: exportedByName.app_id,
    identity: text(),
    user_ids: listOf(text()),
  }),
  ...tables.map(exportedRecord),
  object('A record that was accepted and could not be stored yet.', {
    kind: literal('failed_record'),
    app_id: exportedByName.app_id,
    user_id: exportUserId,
    identity: exportedByName.identity,
    table: text('Where it would be stored.'),
    columns: listOf(text(), 'The names of the values in row.'),
    row: text('A JSON array of its values, as it was accepted.'),
    failed_at: text(),
  }),
  object('The last line. A body without it is incomplete.', {
    kind: literal('end'),
    records: count('Lines before it, not counting lines of the kind user.'),
  }),
]);
