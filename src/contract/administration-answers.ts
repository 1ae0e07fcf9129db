// The TypeBox schemas of the administration's answers, by operation. Nothing checks answers on their way out; the OpenAPI
// document shows these schemas, and the tests compare real answers with them. Answers may get more fields later.

import { type DeletionState, deletionStates } from './deletion-states.js';
import {
  deletionCertificateSchema,
  deletionPreviewSchema,
  deletionSubmittedSchema,
  deletionUsersSchema,
  suppressedSchema,
  suppressionSchemas,
} from './privacy-answers.js';
import type { recordColumns } from './records.js';
import { roles } from './roles.js';
import { type Schema, type Static, Type } from './typebox.js';

const text = Type.String();
const texts = Type.Array(text);
const flag = Type.Boolean();
const count = Type.Integer({ minimum: 0 });
const amount = Type.Number({ minimum: 0 });
const time = Type.String({ format: 'date-time' });
const nothing = Type.Null();
const orNull = <Of extends Schema>(of: Of) => Type.Union([of, nothing]);
const oneOf = <const Value extends string>(...values: readonly Value[]) =>
  Type.Unsafe<Value>({ type: 'string', enum: [...values] });
const byName = <Of extends Schema>(of: Of) => Type.Record(Type.String(), of);

/**
 * For changes that take effect even while ClickHouse lacks their copy. A change that revokes or protects something is then answered as
 * failed, although it has taken effect too.
 */
const copied = Type.Optional(
  Type.Boolean({
    description: 'false: ClickHouse does not have the change yet, so a loss of Redis would undo it.',
  }),
);

const environment = Type.Object({ app_id: text, name: text, main: flag });

const accountSettings = {
  due_days: Type.Integer({
    minimum: 1,
    description: 'The number of days from the receipt of a case until it is due.',
  }),
  erase: oneOf('now', 'together'),
  confirm_from: Type.Union([Type.Integer({ minimum: 1 }), oneOf('none')], {
    description: 'The number of users from which a second person has to confirm a deletion by a person.',
  }),
  second_factor: oneOf('required', 'optional'),
};

const proposal = Type.Object({
  proposal_id: text,
  proposed_at: time,
  proposed_by: text,
  ends_at: time,
  users: count,
  suppress: flag,
  reference: Type.Optional(text),
  case_id: Type.Optional(text),
});

const theCase = Type.Object({
  case_id: text,
  reference: text,
  received_on: Type.String({ format: 'date' }),
  due_on: Type.String({ format: 'date' }),
  opened_at: time,
  opened_by: text,
  state: oneOf('open', 'closed'),
  closed_at: Type.Optional(time),
  closed_by: Type.Optional(text),
  result: Type.Optional(text),
  done: Type.Record(Type.String(), count, { description: 'How often each action was done in it.' }),
});

/** What became of the acknowledged records. `difference`: how many the other counts lack; negative if they have too many. */
const books = {
  acknowledged: count,
  stored: count,
  repeats: count,
  suppressed: count,
  deleted: count,
  expired: count,
  failed: count,
  /** Not stored yet. */
  waiting: count,
  difference: Type.Integer(),
};

const difference = Type.Object({
  app_id: text,
  kind: text,
  minute: time,
  records: Type.Integer({ description: 'How many are missing; negative if there are too many.' }),
});

const settings = Type.Object({
  app_id: text,
  account_id: text,
  name: text,
  main: flag,
  validation: oneOf('strict', 'lenient'),
  limits: byName(Type.Union([count, oneOf('none')])),
  allowed_identities: Type.Optional(texts),
  write_key: Type.Optional(oneOf('required', 'optional')),
  origins: Type.Optional(texts),
  retain_days: Type.Optional(count),
  import_until: Type.Optional(time),
});

const person = Type.Object({
  person_id: text,
  email: text,
  role: oneOf(...roles),
  /** Null for operators. */
  account_id: orNull(text),
  created_at: time,
  /** `invited`: has not chosen a password yet. */
  state: oneOf('invited', 'active'),
  signs_on: Type.Boolean({ description: 'Whether the provider of single sign-on vouches for them.' }),
  second_factor: flag,
  /** Until when an invitation can be accepted; null if there is none that can. */
  invited_until: orNull(time),
  needs_second_factor: Type.Optional(
    Type.Boolean({
      description: 'true: until they have one, which their account requires, they see nothing.',
    }),
  ),
});

const programKey = Type.Object({
  id: text,
  name: text,
  role: oneOf(...roles),
  /** Null for operators. */
  account_id: orNull(text),
  created_at: time,
});

const foundRows = Type.Array(Type.Object({ app_id: text, table: text, rows: count }));

const deletion = Type.Object({
  deletion_request_id: text,
  account_id: text,
  submitted_at: time,
  hidden_at: Type.Optional(time),
  completed_at: Type.Optional(time),
  backups_end_at: Type.Optional(time),
  reference: Type.Optional(text),
  targets: Type.Integer({ minimum: 1, description: 'How many users it names.' }),
  users_found: Type.Optional(count),
  evidence_until: Type.Optional(time),
  status: oneOf('pending', 'complete'),
  state: oneOf(...(Object.keys(deletionStates) as DeletionState[])),
  found: Type.Optional(foundRows),
});

const chart = {
  step_seconds: count,
  at: Type.Array(count, { description: 'The beginning of each step, in seconds since 1970.' }),
};
const counts = Type.Array(amount);

const itsServer = Type.Integer({
  minimum: 0,
  description: 'Its ClickHouse server, in the order of CLICKHOUSE_URL.',
});

const clickhouse = Type.Object({
  version: text,
  uptime_seconds: amount,
  disk_free_bytes: amount,
  disk_bytes: amount,
});

/** How often an event was accepted, and when the first and the last one was. */
const seen = { count: amount, first_seen: time, last_seen: time };
const apiKey = Type.Object({ app_id: text, id: text, name: text, api_key: text, copied });
const revoked = Type.Object({ app_id: text, id: Type.Optional(text), revoked: flag });
const callback = Type.Object({ account_id: text, url: orNull(text) });
const begun = Type.Object({ person, session_id: text, ends_at: time });
const secondFactor = Type.Object({ second_factor: flag });

const keyIndex = Type.Object({
  keys: count,
  bytes: count,
  needed_since: orNull(time),
  shards: Type.Array(
    Type.Object({
      shard: count,
      indexed_to: orNull(time),
      forgotten_to: orNull(time),
      complete: Type.Union([flag, nothing], { description: 'null while its ClickHouse server is away.' }),
      rebuild: orNull(Type.Object({ done_to: orNull(time), to: orNull(time) })),
    }),
    { description: 'The progress of each shard.' },
  ),
});

const eventProperties = Type.Array(
  Type.Object({
    property: text,
    /** In how many of the sampled events it occurs. */
    count: amount,
    /** How many of its values look like a number, a date and so on, since values are stored as text. */
    number: amount,
    boolean: amount,
    time: amount,
    text: amount,
  }),
);

export const administrationAnswers = {
  showCallback: callback,
  setCallback: Type.Object({ account_id: text, url: text, secret: text, copied }),
  removeCallback: callback,
  testCallback: Type.Object({
    account_id: text,
    delivered: flag,
    answer: Type.Optional(Type.Integer({ description: 'The HTTP status of the answer.' })),
    error: Type.Optional(text),
  }),
  showVerified: Type.Union([
    Type.Object({ genuine: Type.Literal(true), key_id: text, certificate: Type.Object({}) }),
    Type.Object({ genuine: Type.Literal(false), reason: text }),
  ]),

  listAccounts: Type.Array(
    Type.Object({
      account_id: text,
      name: text,
      environments: Type.Array(environment),
      settings: Type.Object(accountSettings),
      demo: Type.Optional(flag),
    }),
  ),
  createAccount: Type.Object({
    account_id: text,
    name: text,
    environments: Type.Array(environment),
    settings: Type.Object(accountSettings),
    copied,
  }),
  setAccount: Type.Object({ account_id: text, ...accountSettings }),
  listCases: Type.Array(theCase),
  showCase: theCase,
  openCase: theCase,
  changeCase: theCase,
  addEnvironment: Type.Object({ app_id: text, name: text, copied }),
  showEnvironment: settings,
  setEnvironment: settings,
  showStats: Type.Object({
    app_id: text,
    mended: byName(count),
    ignored_fields: count,
    unauthorized: count,
    differing_repeats: count,
    suppressed: count,
  }),
  showLedgerCheck: Type.Object({
    balanced: flag,
    from: time,
    to: time,
    differences: Type.Array(difference),
    /** What could not be checked, in words. */
    not_checked: Type.Array(text),
  }),
  listDifferences: Type.Array(difference),
  showLedger: Type.Object({
    app_id: text,
    day: text,
    ...books,
    /** Why some minutes cannot be compared; their differences are shown as 0. */
    not_balanced: Type.Array(Type.Object({ from: time, to: time, reason: text })),
    minutes: Type.Array(Type.Object({ minute: time, ...books })),
  }),
  listRejected: Type.Array(
    Type.Object({
      time,
      endpoint: text,
      code: text,
      field: orNull(text),
      bytes: count,
      index: orNull(count),
    }),
  ),
  showRejections: Type.Object({
    ...chart,
    /** The most frequent first. `code` is null for the sum of the less frequent ones, `field` for the whole record. */
    reasons: Type.Array(Type.Object({ code: orNull(text), field: orNull(text), counts })),
  }),

  listKeys: Type.Array(
    Type.Object({
      id: text,
      app_id: text,
      name: text,
      created_at: time,
      /** When it last got a token, to the minute; null if it never did. */
      last_used_at: orNull(time),
      /** Null: it does not expire. */
      expires_at: orNull(time),
    }),
  ),
  revokeKey: revoked,
  showKey: Type.Object({ app_id: text, created_at: orNull(time) }),
  createKey: apiKey,
  rotateKey: apiKey,
  listWriteKeys: Type.Array(Type.Object({ id: text, app_id: text, name: text, created_at: time })),
  createWriteKey: Type.Object({ id: text, app_id: text, name: text, write_key: text, copied }),
  revokeWriteKey: Type.Object({
    app_id: text,
    id: text,
    keys_left: Type.Integer(),
    note: Type.Optional(
      Type.String({ description: 'If one is required but none is left: all servers are refused.' }),
    ),
  }),

  listProgramKeys: Type.Array(programKey),
  createProgramKey: Type.Object({ ...programKey.properties, program_key: text, copied }),
  revokeProgramKey: Type.Object({ id: text, account_id: orNull(text), revoked: flag }),

  listPeople: Type.Array(person),
  invitePerson: Type.Object({ person_id: text, email: text, url: text, copied }),
  removePerson: Type.Object({ person_id: text }),
  listAudit: Type.Array(
    Type.Object({
      at: time,
      id: text,
      actor: oneOf('admin_token', 'command_line', 'api_key', 'program_key', 'person'),
      actor_name: text,
      address: text,
      action: text,
      app_id: text,
      account_id: text,
      key_id: text,
      deletion_request_id: text,
      details: Type.Object({}),
      outcome: text,
    }),
  ),

  listDeletions: Type.Object({ deletions: Type.Array(deletion), cursor: Type.Optional(text) }),
  listProposals: Type.Array(proposal),
  withdrawProposal: proposal,
  showDeletion: deletion,
  listDeletionUsers: deletionUsersSchema,
  showCertificate: deletionCertificateSchema,
  endDeletion: deletion,
  submitDeletion: deletionSubmittedSchema,
  previewDeletion: deletionPreviewSchema,
  listExports: Type.Array(
    Type.Object({
      user_export_id: text,
      submitted_at: time,
      ends_at: time,
      users: count,
      status: oneOf('pending', 'complete'),
    }),
  ),
  submitExport: Type.Object({ user_export_id: text, account_id: text, status: oneOf('pending') }),

  showOverview: Type.Object({
    account_id: text,
    problems: Type.Array(text, {
      description: 'Problems, as parts of a sentence; empty if all is well.',
    }),
    queryable_seconds: amount,
    deletions: Type.Object({ pending: count, oldest_at: orNull(time) }),
  }),
  showTraffic: Type.Object({
    ...chart,
    accepted: counts,
    repeated: counts,
    limited: counts,
    rejected: counts,
    rejected_for: Type.Array(Type.Object({ code: text, field: orNull(text), records: count }), {
      description:
        'The reasons over the whole time, the most frequent first; `field` is null for the whole record.',
    }),
  }),
  showDeployment: Type.Object({
    shards: Type.Array(
      Type.Object({
        shard: count,
        has_worker: flag,
        segments: count,
        rows: count,
        bytes: count,
        oldest_seconds: amount,
        server: itsServer,
      }),
    ),
    backlog_bytes_max: count,
    processes: Type.Array(
      Type.Object({
        process: text,
        host: text,
        pid: count,
        version: text,
        node: text,
        started_at: time,
        said_at: time,
        memory_bytes: count,
        // Of a worker: from the opening of the segment that it stored last until its rows could be queried; 0 before the first.
        queryable_seconds: amount,
      }),
    ),
    redis: Type.Object({ version: text, memory_bytes: count, uptime_seconds: count }),
    clickhouse: orNull(clickhouse),
    clickhouse_servers: Type.Array(orNull(clickhouse)),
  }),

  listEventNames: Type.Array(Type.Object({ event: text, ...seen })),
  listEventProperties: eventProperties,
  showFirstEvent: Type.Object({
    app_id: text,
    event: orNull(Type.Object({ event: text, received_at: time })),
    examples: Type.Array(Type.Object({ name: text, program: text })),
  }),
  watchLive: Type.Object({ app_id: text, place: text }),
  showLive: Type.Object({
    /** The latest, the newest first. */
    events: Type.Array(
      Type.Object({
        event_id: text,
        event: text,
        user_id: orNull(text),
        identity: text,
        received_at: time,
        properties: byName(text),
      }),
    ),
    /** Since the page before. */
    arrived: count,
    place: text,
  }),

  lookUpUser: Type.Object({
    app_id: text,
    found: flag,
    /** Null for an anonymous user. */
    identity: orNull(text),
    user_ids: texts,
    has_more_user_ids: flag,
    properties: byName(text),
    events: Type.Optional(Type.Array(Type.Object({ event: text, ...seen }))),
    suppression: suppressionSchemas.ofUser,
  }),
  lookUpUserEverywhere: Type.Object({
    account_id: text,
    names: Type.Array(
      Type.Object({
        identity: Type.Optional(text),
        user_id: Type.Optional(text),
        suppression: suppressionSchemas.ofUser,
      }),
      { description: 'The given name and, for a user_id, the identities that it was merged into anywhere.' },
    ),
    places: Type.Array(
      Type.Object({
        app_id: text,
        identity: orNull(text),
        user_ids: texts,
        has_more_user_ids: flag,
        properties: count,
        events: amount,
        /** Null without events. */
        first_seen: orNull(time),
        last_seen: orNull(time),
      }),
      { description: 'The environments that hold something about the user, with their name in each.' },
    ),
  }),
  findSimilarUsersEverywhere: Type.Object({ account_id: text, similar: texts }),
  findRequestsOfUser: Type.Object({
    account_id: text,
    deletions: Type.Array(
      Type.Object({
        ...deletion.properties,
        rows: Type.Optional(
          Type.Integer({ minimum: 0, description: 'How many rows of this user were found.' }),
        ),
      }),
    ),
    exports: Type.Array(text, { description: 'Their ids.' }),
    has_more: Type.Boolean({ description: 'Whether older deletions were not searched.' }),
  }),
  countUserEvents: Type.Object({ app_id: text, events: Type.Array(Type.Object({ event: text, ...seen })) }),
  findSimilarUsers: Type.Object({ app_id: text, similar: texts }),
  readUserEvents: Type.Object({
    app_id: text,
    events: Type.Array(
      Type.Object({
        event_id: text,
        event: text,
        user_id: orNull(text),
        identity: text,
        session_id: text,
        time,
        received_at: time,
        properties: byName(text),
      } satisfies Record<Exclude<keyof typeof recordColumns.events, 'app_id'> | 'received_at', object>),
    ),
    /** Where the next page begins; missing on the last one. */
    cursor: Type.Optional(text),
  }),
  showSuppressed: Type.Object({ account_id: text, ...suppressionSchemas.counts.properties }),
  suppressUsers: suppressedSchema,

  listFailed: Type.Array(
    Type.Object({
      table_name: text,
      segment: text,
      line: count,
      app_id: text,
      bytes: Type.Union([count, text]),
      text_hash: text,
      error_code: Type.Integer(),
      error: text,
      failed_at: text,
    }),
  ),
  retryFailed: Type.Object({
    retried: count,
    left: count,
    servers_away: Type.Optional(
      Type.Array(count, { description: 'ClickHouse servers that did not answer: their rows stay.' }),
    ),
  }),
  showKeyIndex: keyIndex,
  rebuildKeyIndex: keyIndex,
  listShards: Type.Array(
    Type.Object({
      shard: count,
      server: itsServer,
      // Stored rows, and about how many bytes they take.
      rows: Type.Union([count, nothing], { description: 'null while its server is away.' }),
      bytes: orNull(count),
      // What waits in Redis.
      backlog_rows: count,
      backlog_bytes: count,
      moving_to: Type.Union([count, nothing], { description: 'The server to which it is being moved.' }),
      moved_rows: Type.Union([count, nothing], {
        description: 'While it is being moved: how many of its rows that server already has.',
      }),
    }),
  ),
  reloadState: Type.Object({
    state: text,
    changes_kept_until: Type.Optional(
      Type.Union([time, nothing], {
        description:
          'Changes of accounts, keys and requests after this time may be lost; null if it is not known.',
      }),
    ),
  }),

  showSession: Type.Object({
    person: orNull(person),
    session_id: Type.Optional(text),
    ends_at: Type.Optional(time),
    single_sign_on: flag,
  }),
  signIn: begun,
  signOut: Type.Object({}),
  showInvitation: Type.Object({ email: text, role: oneOf(...roles), password_length_min: count }),
  acceptInvitation: begun,
  listSessions: Type.Array(
    Type.Object({ id: text, began_at: time, ends_at: time, address: text, agent: text, this_one: flag }),
  ),
  endSession: Type.Object({ id: text, ended: flag }),
  changePassword: begun,
  offerSecondFactor: Type.Object({ secret: text, uri: text }),
  setSecondFactor: secondFactor,
  removeSecondFactor: secondFactor,
} as const satisfies Readonly<Record<string, Schema>>;

/** The answers, as callers get them. */
export type AdministrationAnswers = {
  readonly [Name in keyof typeof administrationAnswers]: Frozen<Static<(typeof administrationAnswers)[Name]>>;
};

type Frozen<Value> = Value extends readonly (infer Element)[]
  ? readonly Frozen<Element>[]
  : Value extends object
    ? { readonly [Name in keyof Value]: Frozen<Value[Name]> }
    : Value;
