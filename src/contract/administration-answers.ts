// The TypeBox schemas of the administration's answers, by operation. Nothing checks answers on their way out; the OpenAPI
// document shows these schemas, and the tests compare real answers with them. Answers may get more fields later.

import { type DeletionState, deletionStates } from './deletion-states.js';
import {
  deletionCertificateSchema,
  deletionPreviewSchema,
  deletionProposedSchema,
  deletionSubmittedSchema,
  deletionUsersSchema,
  suppressedSchema,
  suppressionSchemas,
} from './privacy-answers.js';
import type { recordColumns } from './records.js';
import { roles } from './roles.js';
import {
  amount,
  anyOf,
  byName,
  count,
  flag,
  integer,
  listOf,
  literal,
  object,
  objects,
  oneOf,
  optional,
  orNull,
  type Schema,
  type Static,
  text,
  time,
} from './typebox.js';

/**
 * For changes that take effect even while ClickHouse lacks their copy. A change that revokes or protects something is then answered as
 * failed, although it has taken effect too.
 */
const copied = optional(
  flag('false: ClickHouse does not have the change yet, so a loss of Redis would undo it.'),
);

const environment = object({ app_id: text(), name: text(), main: flag() });

const accountSettings = {
  due_days: integer('The number of days from the receipt of a case until it is due.', { minimum: 1 }),
  erase: oneOf(['now', 'together']),
  confirm_from: anyOf(
    [integer({ minimum: 1 }), oneOf(['none'])],
    'The number of users from which a second person has to confirm a deletion by a person.',
  ),
  second_factor: oneOf(['required', 'optional']),
};

const proposal = object({
  proposal_id: text(),
  proposed_at: time(),
  proposed_by: text(),
  ends_at: time(),
  users: count(),
  suppress: flag(),
  reference: optional(text()),
  case_id: optional(text()),
});

const theCase = object({
  case_id: text(),
  reference: text(),
  received_on: text({ format: 'date' }),
  due_on: text({ format: 'date' }),
  opened_at: time(),
  opened_by: text(),
  state: oneOf(['open', 'closed']),
  closed_at: optional(time()),
  closed_by: optional(text()),
  result: optional(text()),
  done: byName(count(), 'How often each action was done in it.'),
});

/** What became of the acknowledged records. `difference`: how many the other counts lack; negative if they have too many. */
const books = {
  acknowledged: count(),
  stored: count(),
  repeats: count(),
  suppressed: count(),
  deleted: count(),
  expired: count(),
  failed: count(),
  /** Not stored yet. */
  waiting: count(),
  difference: integer(),
};

const difference = object({
  app_id: text(),
  kind: text(),
  minute: time(),
  records: integer('How many are missing; negative if there are too many.'),
});

const settings = object({
  app_id: text(),
  account_id: text(),
  name: text(),
  main: flag(),
  validation: oneOf(['strict', 'lenient']),
  limits: byName(anyOf([count(), oneOf(['none'])])),
  allowed_identities: optional(listOf(text())),
  write_key: optional(oneOf(['required', 'optional'])),
  origins: optional(listOf(text())),
  retain_days: optional(count()),
  import_until: optional(time()),
});

const person = object({
  person_id: text(),
  email: text(),
  role: oneOf(roles),
  /** Null for operators. */
  account_id: orNull(text()),
  created_at: time(),
  /** `invited`: has not chosen a password yet. */
  state: oneOf(['invited', 'active']),
  signs_on: flag('Whether the provider of single sign-on vouches for them.'),
  second_factor: flag(),
  /** Until when an invitation can be accepted; null if there is none that can. */
  invited_until: orNull(time()),
  needs_second_factor: optional(
    flag('true: until they have one, which their account requires, they see nothing.'),
  ),
});

const programKey = object({
  id: text(),
  name: text(),
  role: oneOf(roles),
  /** Null for operators. */
  account_id: orNull(text()),
  created_at: time(),
});

const foundRows = objects({ app_id: text(), table: text(), rows: count() });

const deletion = object({
  deletion_request_id: text(),
  account_id: text(),
  submitted_at: time(),
  hidden_at: optional(time()),
  completed_at: optional(time()),
  backups_end_at: optional(time()),
  reference: optional(text()),
  targets: integer('How many users it names.', { minimum: 1 }),
  users_found: optional(count()),
  evidence_until: optional(time()),
  status: oneOf(['pending', 'complete']),
  state: oneOf(Object.keys(deletionStates) as DeletionState[]),
  found: optional(foundRows),
});

const chart = {
  step_seconds: count(),
  at: listOf(count(), 'The beginning of each step, in seconds since 1970.'),
};
const counts = listOf(amount());

const itsServer = count('Its ClickHouse server, in the order of CLICKHOUSE_URL.');

const clickhouse = object({
  version: text(),
  uptime_seconds: amount(),
  disk_free_bytes: amount(),
  disk_bytes: amount(),
});

/** How often an event was accepted, and when the first and the last one was. */
const seen = { count: amount(), first_seen: time(), last_seen: time() };
const apiKey = object({ app_id: text(), id: text(), name: text(), api_key: text(), copied });
const revoked = object({ app_id: text(), id: optional(text()), revoked: flag() });
const callback = object({ account_id: text(), url: orNull(text()) });
const begun = object({ person, session_id: text(), ends_at: time() });
const secondFactor = object({ second_factor: flag() });

const keyIndex = object({
  keys: count(),
  bytes: count(),
  needed_since: orNull(time()),
  shards: objects('The progress of each shard.', {
    shard: count(),
    indexed_to: orNull(time()),
    forgotten_to: orNull(time()),
    complete: orNull(flag(), 'null while its ClickHouse server is away.'),
    rebuild: orNull(object({ done_to: orNull(time()), to: orNull(time()) })),
  }),
});

const eventProperties = objects({
  property: text(),
  /** In how many of the sampled events it occurs. */
  count: amount(),
  /** How many of its values look like a number, a date and so on, since values are stored as text. */
  number: amount(),
  boolean: amount(),
  time: amount(),
  text: amount(),
});

export const administrationAnswers = {
  showCallback: callback,
  setCallback: object({ account_id: text(), url: text(), secret: text(), copied }),
  removeCallback: callback,
  testCallback: object({
    account_id: text(),
    delivered: flag(),
    answer: optional(integer('The HTTP status of the answer.')),
    error: optional(text()),
  }),
  showVerified: anyOf([
    object({ genuine: literal(true), key_id: text(), certificate: object({}) }),
    object({ genuine: literal(false), reason: text() }),
  ]),

  listAccounts: objects({
    account_id: text(),
    name: text(),
    environments: listOf(environment),
    settings: object(accountSettings),
    demo: optional(flag()),
  }),
  createAccount: object({
    account_id: text(),
    name: text(),
    environments: listOf(environment),
    settings: object(accountSettings),
    copied,
  }),
  setAccount: object({ account_id: text(), ...accountSettings }),
  listCases: listOf(theCase),
  showCase: theCase,
  openCase: theCase,
  changeCase: theCase,
  addEnvironment: object({ app_id: text(), name: text(), copied }),
  showEnvironment: settings,
  setEnvironment: settings,
  showStats: object({
    app_id: text(),
    mended: byName(count()),
    ignored_fields: count(),
    unauthorized: count(),
    differing_repeats: count(),
    suppressed: count(),
  }),
  showLedgerCheck: object({
    balanced: flag(),
    from: time(),
    to: time(),
    differences: listOf(difference),
    /** What could not be checked, in words. */
    not_checked: listOf(text()),
  }),
  listDifferences: listOf(difference),
  showLedger: object({
    app_id: text(),
    day: text(),
    ...books,
    /** Why some minutes cannot be compared; their differences are shown as 0. */
    not_balanced: objects({ from: time(), to: time(), reason: text() }),
    minutes: objects({ minute: time(), ...books }),
  }),
  listRejected: objects({
    time: time(),
    endpoint: text(),
    code: text(),
    field: orNull(text()),
    bytes: count(),
    index: orNull(count()),
  }),
  showRejections: object({
    ...chart,
    /** The most frequent first. `code` is null for the sum of the less frequent ones, `field` for the whole record. */
    reasons: objects({ code: orNull(text()), field: orNull(text()), counts }),
  }),

  listKeys: objects({
    id: text(),
    app_id: text(),
    name: text(),
    created_at: time(),
    /** When it last got a token, to the minute; null if it never did. */
    last_used_at: orNull(time()),
    /** Null: it does not expire. */
    expires_at: orNull(time()),
  }),
  revokeKey: revoked,
  showKey: object({ app_id: text(), created_at: orNull(time()) }),
  createKey: apiKey,
  rotateKey: apiKey,
  listWriteKeys: objects({ id: text(), app_id: text(), name: text(), created_at: time() }),
  createWriteKey: object({ id: text(), app_id: text(), name: text(), write_key: text(), copied }),
  revokeWriteKey: object({
    app_id: text(),
    id: text(),
    keys_left: integer(),
    note: optional(text('If one is required but none is left: all servers are refused.')),
  }),

  listProgramKeys: listOf(programKey),
  createProgramKey: object({ ...programKey.properties, program_key: text(), copied }),
  revokeProgramKey: object({ id: text(), account_id: orNull(text()), revoked: flag() }),

  listPeople: listOf(person),
  invitePerson: object({ person_id: text(), email: text(), url: text(), copied }),
  removePerson: object({ person_id: text() }),
  listAudit: objects({
    at: time(),
    id: text(),
    actor: oneOf(['admin_token', 'command_line', 'api_key', 'program_key', 'person']),
    actor_name: text(),
    address: text(),
    action: text(),
    app_id: text(),
    account_id: text(),
    key_id: text(),
    deletion_request_id: text(),
    details: object({}),
    outcome: text(),
  }),

  listDeletions: object({ deletions: listOf(deletion), cursor: optional(text()) }),
  listProposals: listOf(proposal),
  withdrawProposal: proposal,
  showDeletion: deletion,
  listDeletionUsers: deletionUsersSchema,
  showCertificate: deletionCertificateSchema,
  endDeletion: deletion,
  submitDeletion: anyOf([deletionSubmittedSchema, deletionProposedSchema]),
  previewDeletion: deletionPreviewSchema,
  listExports: objects({
    user_export_id: text(),
    submitted_at: time(),
    ends_at: time(),
    users: count(),
    status: oneOf(['pending', 'complete']),
  }),
  submitExport: object({ user_export_id: text(), account_id: text(), status: oneOf(['pending']) }),

  showOverview: object({
    account_id: text(),
    problems: listOf(text(), 'Problems, as parts of a sentence; empty if all is well.'),
    queryable_seconds: amount(),
    deletions: object({ pending: count(), oldest_at: orNull(time()) }),
  }),
  showTraffic: object({
    ...chart,
    accepted: counts,
    repeated: counts,
    limited: counts,
    rejected: counts,
    rejected_for: objects(
      'The reasons over the whole time, the most frequent first; `field` is null for the whole record.',
      { code: text(), field: orNull(text()), records: count() },
    ),
  }),
  showDeployment: object({
    shards: objects({
      shard: count(),
      has_worker: flag(),
      segments: count(),
      rows: count(),
      bytes: count(),
      oldest_seconds: amount(),
      server: itsServer,
    }),
    backlog_bytes_max: count(),
    processes: objects({
      process: text(),
      host: text(),
      pid: count(),
      version: text(),
      node: text(),
      started_at: time(),
      said_at: time(),
      memory_bytes: count(),
      // Of a worker: from the opening of the segment that it stored last until its rows could be queried; 0 before the first.
      queryable_seconds: amount(),
    }),
    redis: object({ version: text(), memory_bytes: count(), uptime_seconds: count() }),
    clickhouse: orNull(clickhouse),
    clickhouse_servers: listOf(orNull(clickhouse)),
  }),

  listEventNames: objects({ event: text(), ...seen }),
  listEventProperties: eventProperties,
  showFirstEvent: object({
    app_id: text(),
    event: orNull(object({ event: text(), received_at: time() })),
    examples: objects({ name: text(), program: text() }),
  }),
  watchLive: object({ app_id: text(), place: text() }),
  showLive: object({
    /** The latest, the newest first. */
    events: objects({
      event_id: text(),
      event: text(),
      user_id: orNull(text()),
      identity: text(),
      received_at: time(),
      properties: byName(text()),
    }),
    /** Since the page before. */
    arrived: count(),
    place: text(),
  }),

  lookUpUser: object({
    app_id: text(),
    found: flag(),
    /** Null for an anonymous user. */
    identity: orNull(text()),
    user_ids: listOf(text()),
    has_more_user_ids: flag(),
    properties: byName(text()),
    events: optional(objects({ event: text(), ...seen })),
    suppression: suppressionSchemas.ofUser,
  }),
  lookUpUserEverywhere: object({
    account_id: text(),
    names: objects('The given name and, for a user_id, the identities that it was merged into anywhere.', {
      identity: optional(text()),
      user_id: optional(text()),
      suppression: suppressionSchemas.ofUser,
    }),
    places: objects('The environments that hold something about the user, with their name in each.', {
      app_id: text(),
      identity: orNull(text()),
      user_ids: listOf(text()),
      has_more_user_ids: flag(),
      properties: count(),
      events: amount(),
      /** Null without events. */
      first_seen: orNull(time()),
      last_seen: orNull(time()),
    }),
  }),
  findSimilarUsersEverywhere: object({ account_id: text(), similar: listOf(text()) }),
  findRequestsOfUser: object({
    account_id: text(),
    deletions: objects({
      ...deletion.properties,
      rows: optional(count('How many rows of this user were found.')),
    }),
    exports: listOf(text(), 'Their ids.'),
    has_more: flag('Whether older deletions were not searched.'),
  }),
  countUserEvents: object({ app_id: text(), events: objects({ event: text(), ...seen }) }),
  findSimilarUsers: object({ app_id: text(), similar: listOf(text()) }),
  readUserEvents: object({
    app_id: text(),
    events: objects({
      event_id: text(),
      event: text(),
      user_id: orNull(text()),
      identity: text(),
      session_id: text(),
      time: time(),
      received_at: time(),
      properties: byName(text()),
    } satisfies Record<Exclude<keyof typeof recordColumns.events, 'app_id'> | 'received_at', object>),
    /** Where the next page begins; missing on the last one. */
    cursor: optional(text()),
  }),
  showSuppressed: object({ account_id: text(), ...suppressionSchemas.counts.properties }),
  suppressUsers: suppressedSchema,

  listFailed: objects({
    table_name: text(),
    segment: text(),
    line: count(),
    app_id: text(),
    bytes: anyOf([count(), text()]),
    text_hash: text(),
    error_code: integer(),
    error: text(),
    failed_at: text(),
  }),
  retryFailed: object({
    retried: count(),
    left: count(),
    servers_away: optional(listOf(count(), 'ClickHouse servers that did not answer: their rows stay.')),
  }),
  showKeyIndex: keyIndex,
  rebuildKeyIndex: keyIndex,
  listShards: objects({
    shard: count(),
    server: itsServer,
    // Stored rows, and about how many bytes they take.
    rows: orNull(count(), 'null while its server is away.'),
    bytes: orNull(count()),
    // What waits in Redis.
    backlog_rows: count(),
    backlog_bytes: count(),
    moving_to: orNull(count(), 'The server to which it is being moved.'),
    moved_rows: orNull(count(), 'While it is being moved: how many of its rows that server already has.'),
  }),
  reloadState: object({
    state: text(),
    changes_kept_until: optional(
      orNull(
        time(),
        'Changes of accounts, keys and requests after this time may be lost; null if it is not known.',
      ),
    ),
  }),

  showSession: object({
    person: orNull(person),
    session_id: optional(text()),
    ends_at: optional(time()),
    single_sign_on: flag(),
  }),
  signIn: begun,
  signOut: object({}),
  showInvitation: object({ email: text(), role: oneOf(roles), password_length_min: count() }),
  acceptInvitation: begun,
  listSessions: objects({
    id: text(),
    began_at: time(),
    ends_at: time(),
    address: text(),
    agent: text(),
    this_one: flag(),
  }),
  endSession: object({ id: text(), ended: flag() }),
  changePassword: begun,
  offerSecondFactor: object({ secret: text(), uri: text() }),
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
