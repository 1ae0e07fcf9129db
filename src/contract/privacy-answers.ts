// The TypeBox schemas of the answers about users' rights: deletions with their evidence and certificates, suppressions, and exports.
// Nothing checks answers on their way out, as for those in answers.ts.

import { type DeletionState, deletionStates } from './deletion-states.js';
import { type ColumnType, exportedKinds, recordColumns, type TableName, tables } from './records.js';
import { type Schema, Type } from './typebox.js';

const deletionStatus = {
  deletion_request_id: Type.String({ description: 'Names the request.' }),
  status: Type.Union([Type.Literal('pending'), Type.Literal('complete')], {
    description: 'complete: every table was counted and holds nothing of the users. This is final.',
  }),
};

export const deletionSubmittedSchema = Type.Object({
  deletion_request_location: Type.String({ description: 'The URL of its status.' }),
  ...deletionStatus,
});

export const deletionProposedSchema = Type.Object({
  status: Type.Literal('awaits_confirmation'),
  proposal_id: Type.String(),
  users: Type.Integer({ minimum: 1 }),
  ends_at: Type.String({
    format: 'date-time',
    description: 'Until then another person may submit the same list.',
  }),
});

const foundRows = Type.Object({
  app_id: Type.String(),
  table: Type.String(),
  rows: Type.Integer({ minimum: 1 }),
});

/** What a deletion would find. */
export const deletionPreviewSchema = Type.Object({
  dry_run: Type.Literal(true),
  users: Type.Integer({ minimum: 1, description: 'How many different users were named.' }),
  users_found: Type.Integer({ minimum: 0, description: 'How many of them have any rows.' }),
  rows: Type.Integer({ minimum: 0, description: 'How many rows these have.' }),
  found: Type.Array(foundRows, { description: 'The same by environment and table.' }),
  unclear: Type.Array(
    Type.Object({
      place: Type.Integer({ minimum: 0, description: 'Position in your list, from 0.' }),
      found: Type.Boolean(),
      rows: Type.Integer({ minimum: 0 }),
      similar: Type.Integer({ minimum: 0, description: 'How many other identities look like this one.' }),
    }),
    {
      description: 'Users of whom nothing was found, or for whom there are similar identities.',
    },
  ),
});

const statesInWords = Object.entries(deletionStates)
  .filter(([state]) => state !== 'complete')
  .map(([state, meaning]) => `| \`${state}\` | ${meaning} |`)
  .join('\n');

const whenBackupsEnd =
  'When the last backup that may still hold its users expires, if there is one. A restore deletes them again.';

export const deletionStatusSchema = Type.Object({
  ...deletionStatus,
  state: Type.Optional(
    Type.Union(
      (Object.keys(deletionStates) as DeletionState[])
        .filter((state) => state !== 'complete')
        .map((state) => Type.Literal(state)),
      {
        description: `While it is pending: what it is doing or waiting for. With \`targets_lost\` and \`ended\` it stays pending forever.\n\n| State | Meaning |\n|---|---|\n${statesInWords}`,
      },
    ),
  ),
  message: Type.Optional(
    Type.String({
      description: 'While it is pending: the state in words, for people; the wording may change.',
    }),
  ),
  submitted_at: Type.String({ description: 'When it was submitted.' }),
  reference: Type.Optional(Type.String({ description: 'Your own name for it, if you gave it one.' })),
  users: Type.Integer({ minimum: 1, description: 'How many different users it names.' }),
  hidden_at: Type.Optional(Type.String({ description: 'Since when no query shows its users.' })),
  completed_at: Type.Optional(Type.String({ description: 'When it was complete.' })),
  backups_end_at: Type.Optional(Type.String({ description: whenBackupsEnd })),
  users_found: Type.Optional(
    Type.Integer({
      minimum: 0,
      description: 'Once it is complete: how many of the named users had any rows, in any environment.',
    }),
  ),
  evidence_until: Type.Optional(
    Type.String({ description: 'Once it is complete: until when the counts of each named user are kept.' }),
  ),
  callback: Type.Optional(
    Type.Object(
      {
        state: Type.Union([Type.Literal('pending'), Type.Literal('delivered'), Type.Literal('failed')]),
        tries: Type.Array(
          Type.Object({
            at: Type.String(),
            answer: Type.Optional(Type.Integer({ description: 'The HTTP status of the answer.' })),
            error: Type.Optional(Type.String({ description: 'Why there was no answer.' })),
          }),
          { description: 'The oldest first.' },
        ),
      },
      { description: 'Once it is complete, if the account has a callback: the attempts to call it.' },
    ),
  ),
  rows_deleted: Type.Optional(
    Type.Integer({
      minimum: 0,
      description:
        'Once it is complete: how many rows it found and deleted. A row that another request also names counts in both if they were deleted together.',
    }),
  ),
});

const calledAccount = Type.String({ description: 'The account that is called.' });
const { callback: _, state: __, message: ___, ...statusWhenComplete } = deletionStatusSchema.properties;

/** The body of a call: a deletion is complete, or the callback is being tested. */
export const callSchemas = {
  complete: Type.Object({
    type: Type.Literal('deletion.complete'),
    account_id: calledAccount,
    ...statusWhenComplete,
    status: Type.Literal('complete'),
  }),
  test: Type.Object({ type: Type.Literal('test'), account_id: calledAccount }),
} as const;

/** The answer to a submission of suppressed users, once it is in force. */
export const suppressedSchema = Type.Object({
  users: Type.Integer({ description: 'How many different users the request names.' }),
  suppress: Type.Boolean({ description: 'As in the request.' }),
});

/** What is known of one user, or of all users of the account. */
export const suppressionSchemas = {
  ofUser: Type.Object({
    suppressed: Type.Boolean({
      description: 'Whether the user is suppressed: their records are not stored.',
    }),
    since: Type.Optional(Type.String({ format: 'date-time', description: 'Since when.' })),
    app_ids: Type.Optional(
      Type.Array(Type.String(), {
        description:
          'Only if the user is not suppressed everywhere: the environments in which they are merged with a suppressed user.',
      }),
    ),
  }),
  counts: Type.Object({
    users: Type.Integer({ description: 'How many users are suppressed, as requests named them.' }),
    names: Type.Integer({
      description: 'How many identities and user_ids these have, including those of users merged with them.',
    }),
    records: Type.Integer({ description: 'How many records about them were answered 200 and not stored.' }),
  }),
} as const;

/** Whether users are suppressed, in the order asked. */
export const suppressionLookupSchema = Type.Object({ users: Type.Array(suppressionSchemas.ofUser) });

/** What a deletion has done, signed by the deployment. */
export const deletionCertificateSchema = Type.Object({
  certificate: Type.Object(
    {
      type: Type.Literal('sluice-deletion-1'),
      deletion_request_id: Type.String(),
      account_id: Type.String(),
      app_id: Type.String({
        description: 'The environment whose API key submitted it; without a key, the main environment.',
      }),
      key_created_at: Type.Optional(Type.String({ description: 'When that key was made.' })),
      submitted_by: Type.Optional(
        Type.Union([Type.Literal('person'), Type.Literal('admin_token'), Type.Literal('program_key')], {
          description:
            'Only without an API key: a person in the console, or a program with ADMIN_TOKEN or a key of its own.',
        }),
      ),
      reference: Type.Optional(Type.String()),
      submitted_at: Type.String(),
      hidden_at: Type.Optional(Type.String({ description: 'Since when no query showed them.' })),
      verified_at: Type.String({ description: 'When every table was counted and held nothing.' }),
      completed_at: Type.String(),
      backups_end_at: Type.Optional(Type.String({ description: whenBackupsEnd })),
      users: Type.Integer({ minimum: 1 }),
      users_found: Type.Optional(Type.Integer({ minimum: 0 })),
      rows_deleted: Type.Integer({ minimum: 0 }),
      found: Type.Array(foundRows),
      tables_counted: Type.Optional(Type.Array(Type.String())),
      statement: Type.Optional(Type.String({ description: 'What the count has shown, in words.' })),
    },
    { description: 'What was counted. It names no user.' },
  ),
  signature: Type.Object({
    algorithm: Type.Literal('Ed25519'),
    key_id: Type.String({ description: 'The key, as the endpoint signing_key names it.' }),
    value: Type.String({
      description:
        'The signature, in base64, of the certificate as canonical JSON (RFC 8785: no white space, names sorted) in UTF-8.',
    }),
  }),
});

/** The public part of the deployment's key. */
export const signingKeySchema = Type.Object({
  algorithm: Type.Literal('Ed25519'),
  key_id: Type.String({ description: 'The first 16 digits of the SHA-256 of the key in DER.' }),
  public_key: Type.String({ description: 'SubjectPublicKeyInfo in PEM.' }),
});

const countsOfUser = {
  found: Type.Boolean({ description: 'Whether the user had any rows.' }),
  rows: Type.Integer({
    minimum: 0,
    description:
      'How many rows the whole merged user had in all environments. A row of two named users counts for both.',
  }),
  similar: Type.Integer({
    minimum: 0,
    description:
      'How many other identities of the account differ from this one only in case or in surrounding white space; they were deleted only if they were named themselves.',
  }),
};

/** What was counted for each user that a deletion named, without the user. */
export const deletionUsersSchema = Type.Object({
  users: Type.Array(
    Type.Object({
      place: Type.Integer({
        minimum: 0,
        description: 'The first position of the user in the submitted list, from 0.',
      }),
      ...countsOfUser,
    }),
    { description: 'Every different user, in the order of the submitted list.' },
  ),
  cursor: Type.Optional(Type.String({ description: 'For the next page. Absent on the last page.' })),
});

/** The same for users whom the caller names. */
export const deletionLookupSchema = Type.Object({
  users: Type.Array(
    Type.Object({
      ...countsOfUser,
      named: Type.Optional(
        Type.Literal(false, {
          description: 'Only if the deletion did not name this user: nothing was counted.',
        }),
      ),
    }),
    { description: 'In the order asked.' },
  ),
});

/** A page of the account's requests. */
export const deletionListSchema = Type.Object({
  deletions: Type.Array(deletionStatusSchema, { description: 'The newest first.' }),
  cursor: Type.Optional(
    Type.String({
      description:
        'For the next page. Absent on the last page; earlier pages may have few requests, or none.',
    }),
  ),
});

/** An export, submitted or asked about. */
export const userExportSchema = Type.Object({
  user_export_location: Type.String({
    description: 'The URL of its status; with /data appended, the URL of its data.',
  }),
  user_export_id: Type.String({ description: 'Names the export.' }),
  status: Type.Union([Type.Literal('pending'), Type.Literal('complete')], {
    description:
      'complete: all records of the export can be read. This state is final; after 24 hours the export is no longer found.',
  }),
});

const exportUserId = Type.Union([Type.String(), Type.Null()], {
  description: 'In plain decimal form; null when the record came with an identity alone.',
});
/** The schemas of the values in a line of an export, by the type of their column. */
const exportedColumns = {
  text: Type.String(),
  event_id: Type.String({
    description:
      'Made from the idempotency key or the id of a message; begins with 32 zero bits if there was none.',
  }),
  user_id: Type.String(),
  optional_user_id: exportUserId,
  time: Type.String({ description: 'When it happened, in UTC.' }),
  properties: Type.Object({}, { additionalProperties: Type.String() }),
} satisfies Readonly<Record<ColumnType, Schema>>;
/** Columns with a description of their own. */
const exportedByName = {
  app_id: Type.String({ description: 'The environment.' }),
  identity: Type.String({ description: 'Empty when the record came with a user_id alone.' }),
};

function exportedRecord(table: TableName) {
  const byName: Readonly<Record<string, Schema>> = exportedByName;
  const { kind, description } = exportedKinds[table];
  const columns = Object.entries<ColumnType>(recordColumns[table]).map(([name, type]) => [
    name,
    byName[name] ?? exportedColumns[type],
  ]);
  return Type.Object(
    {
      kind: Type.Literal(kind),
      ...(Object.fromEntries(columns) as Readonly<Record<string, Schema>>),
      received_at: Type.String({ description: 'When it was accepted, in UTC.' }),
    },
    { description },
  );
}

/** The parameter `format` of a download: lines, which is the default, or an archive with pages to read. */
export const exportFormats = ['ndjson', 'zip'] as const;
export type ExportFormat = (typeof exportFormats)[number];

export const exportLineSchema = Type.Union([
  Type.Object(
    {
      kind: Type.Literal('user'),
      app_id: exportedByName.app_id,
      identity: Type.String(),
      user_ids: Type.Array(Type.String()),
    },
    { description: 'A user who was merged: the identity, and the user_ids that were merged into it.' },
  ),
  ...tables.map(exportedRecord),
  Type.Object(
    {
      kind: Type.Literal('failed_record'),
      app_id: exportedByName.app_id,
      user_id: exportUserId,
      identity: exportedByName.identity,
      table: Type.String({ description: 'Where it would be stored.' }),
      columns: Type.Array(Type.String(), { description: 'The names of the values in row.' }),
      row: Type.String({ description: 'A JSON array of its values, as it was accepted.' }),
      failed_at: Type.String(),
    },
    { description: 'A record that was accepted and could not be stored yet.' },
  ),
  Type.Object(
    {
      kind: Type.Literal('end'),
      records: Type.Integer({
        minimum: 0,
        description: 'Lines before it, not counting lines of the kind user.',
      }),
    },
    { description: 'The last line. A body without it is incomplete.' },
  ),
]);
