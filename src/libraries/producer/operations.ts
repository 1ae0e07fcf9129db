// Made by deploy/client-operations.ts from the OpenAPI documents of the service; a test says how to write it again.

type ShowDeploymentClickhouse = {
  version: string;
  uptime_seconds: number;
  disk_free_bytes: number;
  disk_bytes: number;
};

type DeletionLookup = {
  users: readonly { identity?: string; user_id?: number | string; anonymous_id?: string }[];
};

type ListEventPropertiesAnswer = {
  property: string;
  count: number;
  number: number;
  boolean: number;
  time: number;
  text: number;
};

type DeletionSubmitted = {
  deletion_request_location: string;
  deletion_request_id: string;
  status: 'pending' | 'complete';
};

type DeletionUsers = {
  users: readonly { place: number; found: boolean; rows: number; similar: number }[];
  cursor?: string;
};

type ListAccountsSettings = {
  due_days: number;
  erase: 'now' | 'together';
  confirm_from: number | 'none';
  second_factor: 'required' | 'optional';
};

type ListProposalsAnswer = {
  proposal_id: string;
  proposed_at: string;
  proposed_by: string;
  ends_at: string;
  users: number;
  suppress: boolean;
  reference?: string;
  case_id?: string;
};

type ListDeletionsStateGiven =
  | 'submitted'
  | 'waiting_for_backlog'
  | 'finding_users'
  | 'deleting'
  | 'verifying'
  | 'hidden'
  | 'complete'
  | 'clickhouse_unavailable'
  | 'no_room'
  | 'mutation_failed'
  | 'failed'
  | 'targets_lost'
  | 'ended';

type ListDeletionsState = 'pending' | ListDeletionsStateGiven;

type ListCasesAnswer = {
  case_id: string;
  reference: string;
  received_on: string;
  due_on: string;
  opened_at: string;
  opened_by: string;
  state: 'open' | 'closed';
  closed_at?: string;
  closed_by?: string;
  result?: string;
  done: Record<string, number>;
};

type ShowKeyIndexAnswer = {
  keys: number;
  bytes: number;
  needed_since: string | null;
  shards: readonly {
    shard: number;
    indexed_to: string | null;
    forgotten_to: string | null;
    complete: boolean | null;
    rebuild: { done_to: string | null; to: string | null } | null;
  }[];
};

type SetEnvironmentAnswer = {
  app_id: string;
  account_id: string;
  name: string;
  main: boolean;
  validation: 'strict' | 'lenient';
  limits: Record<string, number | 'none'>;
  allowed_identities?: readonly string[];
  write_key?: 'required' | 'optional';
  origins?: readonly string[];
  retain_days?: number;
  import_until?: string;
};

type ListDeletionsDeletions = {
  deletion_request_id: string;
  account_id: string;
  submitted_at: string;
  hidden_at?: string;
  completed_at?: string;
  backups_end_at?: string;
  reference?: string;
  targets: number;
  users_found?: number;
  evidence_until?: string;
  status: 'pending' | 'complete';
  state: ListDeletionsStateGiven;
  found?: readonly { app_id: string; table: string; rows: number }[];
};

type DeletionCertificate = {
  certificate: {
    type: 'sluice-deletion-1';
    deletion_request_id: string;
    account_id: string;
    app_id: string;
    key_created_at?: string;
    submitted_by?: 'person' | 'admin_token' | 'program_key';
    reference?: string;
    submitted_at: string;
    hidden_at?: string;
    verified_at: string;
    completed_at: string;
    backups_end_at?: string;
    users: number;
    users_found?: number;
    rows_deleted: number;
    found: readonly { app_id: string; table: string; rows: number }[];
    tables_counted?: readonly string[];
    statement?: string;
  };
  signature: { algorithm: 'Ed25519'; key_id: string; value: string };
};

type DeletionStatus = {
  deletion_request_id: string;
  status: 'pending' | 'complete';
  state?:
    | 'submitted'
    | 'waiting_for_backlog'
    | 'finding_users'
    | 'deleting'
    | 'verifying'
    | 'hidden'
    | 'clickhouse_unavailable'
    | 'no_room'
    | 'mutation_failed'
    | 'failed'
    | 'targets_lost'
    | 'ended';
  message?: string;
  submitted_at: string;
  reference?: string;
  users: number;
  hidden_at?: string;
  completed_at?: string;
  backups_end_at?: string;
  users_found?: number;
  evidence_until?: string;
  callback?: {
    state: 'pending' | 'delivered' | 'failed';
    tries: readonly { at: string; answer?: number; error?: string }[];
  };
  rows_deleted?: number;
};

type Deletion = {
  users: readonly { identity?: string; user_id?: number | string; anonymous_id?: string }[];
  erase?: 'now';
  dry_run?: boolean;
  reference?: string;
  suppress?: boolean;
};

type DeletionList = { deletions: readonly DeletionStatus[]; cursor?: string };

type DeletionLookedUp = {
  users: readonly { found: boolean; rows: number; similar: number; named?: false }[];
};

type DeletionPreview = {
  dry_run: true;
  users: number;
  users_found: number;
  rows: number;
  found: readonly { app_id: string; table: string; rows: number }[];
  unclear: readonly { place: number; found: boolean; rows: number; similar: number }[];
};

type Export = DeletionLookup;

type SigningKey = { algorithm: 'Ed25519'; key_id: string; public_key: string };

type Suppressed = { users: number; suppress: boolean };

type Suppression = {
  users: readonly { identity?: string; user_id?: number | string; anonymous_id?: string }[];
  suppress: boolean;
};

type SuppressionCounts = { users: number; names: number; records: number };

type SuppressionLookedUp = {
  users: readonly { suppressed: boolean; since?: string; app_ids?: readonly string[] }[];
};

type SuppressionLookup = DeletionLookup;

type SuppressionOfUser = { suppressed: boolean; since?: string; app_ids?: readonly string[] };

type UserExport = { user_export_location: string; user_export_id: string; status: 'pending' | 'complete' };

export type AdministrationOperations = {
  /** Accounts with their environments; `demo` is true for the account of the page /demo */
  listAccounts: {
    given: { account_id?: string };
    answer: readonly {
      account_id: string;
      name: string;
      environments: readonly { app_id: string; name: string; main: boolean }[];
      settings: ListAccountsSettings;
      demo?: boolean;
    }[];
  };
  /** Create an account */
  createAccount: {
    given: { name: string; environments: readonly string[] };
    answer: {
      account_id: string;
      name: string;
      environments: readonly { app_id: string; name: string; main: boolean }[];
      settings: ListAccountsSettings;
      copied?: boolean;
    };
  };
  /** Change the settings of an account */
  setAccount: {
    given: { account_id: string } & {
      due_days?: number | string;
      erase?: 'now' | 'together';
      confirm_from?: 'none' | (number | string);
      second_factor?: 'required' | 'optional';
    };
    answer: {
      account_id: string;
      due_days: number;
      erase: 'now' | 'together';
      confirm_from: number | 'none';
      second_factor: 'required' | 'optional';
    };
  };
  /** The URL that is called when a deletion is complete, without the secret */
  showCallback: { given: { account_id: string }; answer: { account_id: string; url: string | null } };
  /** Set the callback; only this answer has the secret */
  setCallback: {
    given: { account_id: string } & { url: string };
    answer: { account_id: string; url: string; secret: string; copied?: boolean };
  };
  /** Remove the callback */
  removeCallback: { given: { account_id: string }; answer: { account_id: string; url: string | null } };
  /** Make a test call now */
  testCallback: {
    given: { account_id: string };
    answer: { account_id: string; delivered: boolean; answer?: number; error?: string };
  };
  /** Add an environment */
  addEnvironment: {
    given: { account_id: string } & { name: string };
    answer: { app_id: string; name: string; copied?: boolean };
  };
  /** Change settings */
  setEnvironment: {
    given: { app_id: string } & {
      main?: true;
      validation?: 'strict' | 'lenient';
      limits?: {
        track?: 'none' | 'default' | (number | string);
        user_properties?: 'none' | 'default' | (number | string);
        bulk_identity?: 'none' | 'default' | (number | string);
        bulk_app?: 'none' | 'default' | (number | string);
        collect_user?: 'none' | 'default' | (number | string);
        collect_app?: 'none' | 'default' | (number | string);
        app_records?: 'none' | 'default' | (number | string);
        app_bytes?: 'none' | 'default' | (number | string);
      };
      allow_identities?: readonly string[];
      disallow_identities?: readonly string[];
      write_key?: 'required' | 'optional';
      import_until?: string;
      retain_days?: 'none' | (number | string);
      origins?: 'any' | readonly string[];
    };
    answer: SetEnvironmentAnswer;
  };
  /** An environment with its settings */
  showEnvironment: { given: { app_id: string }; answer: SetEnvironmentAnswer };
  /** Create a key for a program that calls the administration; only this answer has it */
  createProgramKey: {
    given: { name: string; role: 'operator' | 'administrator' | 'privacy' | 'viewer'; account_id?: string };
    answer: {
      id: string;
      name: string;
      role: 'operator' | 'administrator' | 'privacy' | 'viewer';
      account_id: string | null;
      created_at: string;
      program_key: string;
      copied?: boolean;
    };
  };
  /** Keys of programs, never the keys themselves */
  listProgramKeys: {
    given: { account_id?: string };
    answer: readonly {
      id: string;
      name: string;
      role: 'operator' | 'administrator' | 'privacy' | 'viewer';
      account_id: string | null;
      created_at: string;
    }[];
  };
  /** Revoke a program key; it ends within a second */
  revokeProgramKey: {
    given: { id: string } & { account_id?: string };
    answer: { id: string; account_id: string | null; revoked: boolean };
  };
  /** Invite a person; only this answer has the link */
  invitePerson: {
    given: { email: string; role: 'operator' | 'administrator' | 'privacy' | 'viewer'; account_id?: string };
    answer: { person_id: string; email: string; url: string; copied?: boolean };
  };
  /** People */
  listPeople: {
    given: { account_id?: string };
    answer: readonly {
      person_id: string;
      email: string;
      role: 'operator' | 'administrator' | 'privacy' | 'viewer';
      account_id: string | null;
      created_at: string;
      state: 'invited' | 'active';
      signs_on: boolean;
      second_factor: boolean;
      invited_until: string | null;
      needs_second_factor?: boolean;
    }[];
  };
  /** Remove a person */
  removePerson: { given: { person_id: string }; answer: { person_id: string } };
  /** The last 100 actions: who, what, when, from where; privacy officers see those on users, and their own */
  listAudit: {
    given: {
      account_id?: string;
      who?: string;
      action?: string;
      deletion_request_id?: string;
      case_id?: string;
      since?: string;
      until?: string;
      before?: string;
      before_id?: string;
    };
    answer: readonly {
      at: string;
      id: string;
      actor: 'admin_token' | 'command_line' | 'api_key' | 'program_key' | 'person';
      actor_name: string;
      address: string;
      action: string;
      app_id: string;
      account_id: string;
      key_id: string;
      deletion_request_id: string;
      details: Record<string, unknown>;
      outcome: string;
    }[];
  };
  /** What is not well, if anything; how soon records can be queried; pending deletions */
  showOverview: {
    given: { account_id: string };
    answer: {
      account_id: string;
      problems: readonly string[];
      queryable_seconds: number;
      deletions: { pending: number; oldest_at: string | null };
    };
  };
  /** Records accepted, repeated, limited and rejected, by minute or hour; the last minute is a few seconds late */
  showTraffic: {
    given: { account_id: string; app_id?: string; span?: 'hour' | 'week' };
    answer: {
      step_seconds: number;
      at: readonly number[];
      accepted: readonly number[];
      repeated: readonly number[];
      limited: readonly number[];
      rejected: readonly number[];
      rejected_for: readonly { code: string; field: string | null; records: number }[];
    };
  };
  /** Shards with their backlog, processes, Redis and ClickHouse */
  showDeployment: {
    given: object;
    answer: {
      shards: readonly {
        shard: number;
        has_worker: boolean;
        segments: number;
        rows: number;
        bytes: number;
        oldest_seconds: number;
        server: number;
      }[];
      backlog_bytes_max: number;
      processes: readonly {
        process: string;
        host: string;
        pid: number;
        version: string;
        node: string;
        started_at: string;
        said_at: string;
        memory_bytes: number;
        queryable_seconds: number;
      }[];
      redis: { version: string; memory_bytes: number; uptime_seconds: number };
      clickhouse: ShowDeploymentClickhouse | null;
      clickhouse_servers: readonly (ShowDeploymentClickhouse | null)[];
    };
  };
  /** What was mended, ignored and refused */
  showStats: {
    given: { app_id: string };
    answer: {
      app_id: string;
      mended: Record<string, number>;
      ignored_fields: number;
      unauthorized: number;
      differing_repeats: number;
      suppressed: number;
    };
  };
  /** The last records that were refused, without values */
  listRejected: {
    given: { app_id: string };
    answer: readonly {
      time: string;
      endpoint: string;
      code: string;
      field: string | null;
      bytes: number;
      index: number | null;
    }[];
  };
  /** Rejected records by code and field, by minute or hour; the last minute is a few seconds late */
  showRejections: {
    given: { app_id: string; span?: 'hour' | 'week' };
    answer: {
      step_seconds: number;
      at: readonly number[];
      reasons: readonly { code: string | null; field: string | null; counts: readonly number[] }[];
    };
  };
  /** The events that were accepted lately: how often, and when the first and the last one came */
  listEventNames: {
    given: { app_id: string; days?: number | string };
    answer: readonly { event: string; count: number; first_seen: string; last_seen: string }[];
  };
  /** The properties of an event and the types of their values, from a sample; no values */
  listEventProperties: {
    given: { app_id: string; event: string; days?: number | string };
    answer: readonly ListEventPropertiesAnswer[];
  };
  /** The properties of an event and the types of their values, from a sample; no values */
  readEventProperties: {
    given: { app_id: string } & { event: string; days?: number | string };
    answer: readonly ListEventPropertiesAnswer[];
  };
  /** An event of the environment, once one is stored, and example programs that send one */
  showFirstEvent: {
    given: { app_id: string };
    answer: {
      app_id: string;
      event: { event: string; received_at: string } | null;
      examples: readonly { name: string; program: string }[];
    };
  };
  /** Begin to watch what arrives: the answer has the place from which to ask, valid for an hour */
  watchLive: { given: { app_id: string }; answer: { app_id: string; place: string } };
  /** The latest 20 events since a place, and the next place */
  showLive: {
    given: { app_id: string; place: string };
    answer: {
      events: readonly {
        event_id: string;
        event: string;
        user_id: string | null;
        identity: string;
        received_at: string;
        properties: Record<string, string>;
      }[];
      arrived: number;
      place: string;
    };
  };
  /** Compares what was accepted in a period with what is stored, refused, deleted or expired */
  showLedgerCheck: {
    given: { from?: string; to?: string };
    answer: {
      balanced: boolean;
      from: string;
      to: string;
      differences: readonly { app_id: string; kind: string; minute: string; records: number }[];
      not_checked: readonly string[];
    };
  };
  /** Environments and minutes whose records do not add up, as found by the automatic check */
  listDifferences: {
    given: object;
    answer: readonly { app_id: string; kind: string; minute: string; records: number }[];
  };
  /** What became of the records that an environment accepted on a day, by minute */
  showLedger: {
    given: { app_id: string; day: string };
    answer: {
      app_id: string;
      day: string;
      acknowledged: number;
      stored: number;
      repeats: number;
      suppressed: number;
      deleted: number;
      expired: number;
      failed: number;
      waiting: number;
      difference: number;
      not_balanced: readonly { from: string; to: string; reason: string }[];
      minutes: readonly {
        minute: string;
        acknowledged: number;
        stored: number;
        repeats: number;
        suppressed: number;
        deleted: number;
        expired: number;
        failed: number;
        waiting: number;
        difference: number;
      }[];
    };
  };
  /** Create an API key; only this answer has it */
  createKey: {
    given: { app_id: string } & { name?: string };
    answer: { app_id: string; id: string; name: string; api_key: string; copied?: boolean };
  };
  /** Replace all API keys, or the one with a name */
  rotateKey: {
    given: { app_id: string } & { name?: string; overlap?: string };
    answer: { app_id: string; id: string; name: string; api_key: string; copied?: boolean };
  };
  /** Revoke an API key, or all */
  revokeKeys: { given: { app_id: string }; answer: { app_id: string; id?: string; revoked: boolean } };
  /** When the latest API key was created */
  showKey: { given: { app_id: string }; answer: { app_id: string; created_at: string | null } };
  /** API keys, never the keys themselves */
  listKeys: {
    given: { app_id: string };
    answer: readonly {
      id: string;
      app_id: string;
      name: string;
      created_at: string;
      last_used_at: string | null;
      expires_at: string | null;
    }[];
  };
  /** Revoke an API key, or all */
  revokeKey: {
    given: { app_id: string; id: string };
    answer: { app_id: string; id?: string; revoked: boolean };
  };
  /** Create a write key; only this answer has it */
  createWriteKey: {
    given: { app_id: string } & { name?: string };
    answer: { id: string; app_id: string; name: string; write_key: string; copied?: boolean };
  };
  /** Write keys, never the keys themselves */
  listWriteKeys: {
    given: { app_id: string };
    answer: readonly { id: string; app_id: string; name: string; created_at: string }[];
  };
  /** Revoke a write key */
  revokeWriteKey: {
    given: { app_id: string; id: string };
    answer: { app_id: string; id: string; keys_left: number; note?: string };
  };
  /** Deletion requests, the newest first, in pages */
  listDeletions: {
    given: { account_id?: string; state?: ListDeletionsState; reference?: string; cursor?: string };
    answer: { deletions: readonly ListDeletionsDeletions[]; cursor?: string };
  };
  /** Deletions that a second person has to confirm, by submitting the same list */
  listProposals: { given: { account_id: string }; answer: readonly ListProposalsAnswer[] };
  /** Withdraw a deletion that awaits a second person */
  withdrawProposal: { given: { account_id: string; proposal_id: string }; answer: ListProposalsAnswer };
  /** A deletion request with its evidence */
  showDeletion: { given: { deletion_request_id: string }; answer: ListDeletionsDeletions };
  /** End a request whose targets are lost */
  endDeletion: { given: { deletion_request_id: string }; answer: ListDeletionsDeletions };
  /** What was counted for each user of a complete deletion, by position in the list, without names */
  listDeletionUsers: { given: { deletion_request_id: string; cursor?: string }; answer: DeletionUsers };
  /** The signed certificate of a complete deletion */
  showCertificate: { given: { deletion_request_id: string }; answer: DeletionCertificate };
  /** Whether a certificate of a deletion is genuine */
  showVerified: {
    given: Record<string, unknown>;
    answer:
      | { genuine: true; key_id: string; certificate: Record<string, unknown> }
      | { genuine: false; reason: string };
  };
  /** What is held about a user: merged names, properties, how often which events, and whether suppressed */
  lookUpUser: {
    given: { app_id: string } & {
      identity?: string;
      user_id?: number | string;
      anonymous_id?: string;
      events?: boolean;
    };
    answer: {
      app_id: string;
      found: boolean;
      identity: string | null;
      user_ids: readonly string[];
      has_more_user_ids: boolean;
      properties: Record<string, string>;
      events?: readonly { event: string; count: number; first_seen: string; last_seen: string }[];
      suppression: { suppressed: boolean; since?: string; app_ids?: readonly string[] };
    };
  };
  /** Where in an account something is held about a user, how much, since when, and whether suppressed */
  lookUpUserEverywhere: {
    given: { account_id: string } & { identity?: string; user_id?: number | string; anonymous_id?: string };
    answer: {
      account_id: string;
      names: readonly {
        identity?: string;
        user_id?: string;
        suppression: { suppressed: boolean; since?: string; app_ids?: readonly string[] };
      }[];
      places: readonly {
        app_id: string;
        identity: string | null;
        user_ids: readonly string[];
        has_more_user_ids: boolean;
        properties: number;
        events: number;
        first_seen: string | null;
        last_seen: string | null;
      }[];
    };
  };
  /** Identities in any environment that are the same in lower case and without surrounding blanks */
  findSimilarUsersEverywhere: {
    given: { account_id: string } & { identity: string };
    answer: { account_id: string; similar: readonly string[] };
  };
  /** Deletions and exports that concern a user: from the last 30 days, or still kept */
  findRequestsOfUser: {
    given: { account_id: string } & { identity?: string; user_id?: number | string; anonymous_id?: string };
    answer: {
      account_id: string;
      deletions: readonly {
        deletion_request_id: string;
        account_id: string;
        submitted_at: string;
        hidden_at?: string;
        completed_at?: string;
        backups_end_at?: string;
        reference?: string;
        targets: number;
        users_found?: number;
        evidence_until?: string;
        status: 'pending' | 'complete';
        state: ListDeletionsStateGiven;
        found?: readonly { app_id: string; table: string; rows: number }[];
        rows?: number;
      }[];
      exports: readonly string[];
      has_more: boolean;
    };
  };
  /** How often which events of a user are stored, and the first and the last time of each */
  countUserEvents: {
    given: { app_id: string } & { identity?: string; user_id?: number | string; anonymous_id?: string };
    answer: {
      app_id: string;
      events: readonly { event: string; count: number; first_seen: string; last_seen: string }[];
    };
  };
  /** Other identities that are the same in lower case and without surrounding blanks */
  findSimilarUsers: {
    given: { app_id: string } & { identity: string };
    answer: { app_id: string; similar: readonly string[] };
  };
  /** The events of a user, the latest first, in pages */
  readUserEvents: {
    given: { app_id: string } & {
      identity?: string;
      user_id?: number | string;
      anonymous_id?: string;
      event?: string;
      cursor?: string;
    };
    answer: {
      app_id: string;
      events: readonly {
        event_id: string;
        event: string;
        user_id: string | null;
        identity: string;
        session_id: string;
        time: string;
        received_at: string;
        properties: Record<string, string>;
      }[];
      cursor?: string;
    };
  };
  /** How many users are suppressed; their names are stored only as hashes */
  showSuppressed: {
    given: { account_id: string };
    answer: { account_id: string; users: number; names: number; records: number };
  };
  /** Suppress users, or free them */
  suppressUsersOfAccount: {
    given: { account_id: string } & {
      users: readonly { identity?: string; user_id?: number | string; anonymous_id?: string }[];
      case_id?: string;
      suppress: boolean;
      reference?: string;
    };
    answer: { users: number; suppress: boolean };
  };
  /** The latest exports, without names of users */
  listExports: {
    given: { account_id: string };
    answer: readonly {
      user_export_id: string;
      submitted_at: string;
      ends_at: string;
      users: number;
      status: 'pending' | 'complete';
    }[];
  };
  /** Ask for an export of users */
  submitExportOfAccount: {
    given: { account_id: string } & {
      users: readonly { identity?: string; user_id?: number | string; anonymous_id?: string }[];
      case_id?: string;
    };
    answer: { user_export_id: string; account_id: string; status: 'pending' };
  };
  /** Cases: open ones by the day when they are due, closed ones the latest first */
  listCases: { given: { account_id: string; state?: 'open' | 'closed' }; answer: readonly ListCasesAnswer[] };
  /** Open a case */
  openCase: {
    given: { account_id: string } & { reference: string; received_on?: string; due_on?: string };
    answer: ListCasesAnswer;
  };
  /** A case; the audit log has its lines by `case_id` */
  showCase: { given: { account_id: string; case_id: string }; answer: ListCasesAnswer };
  /** Change a case, close it, or open it again */
  changeCase: {
    given: { account_id: string; case_id: string } & {
      reference?: string;
      received_on?: string;
      due_on?: string;
      state?: 'open' | 'closed';
      result?: string;
    };
    answer: ListCasesAnswer;
  };
  /** Rows that ClickHouse refused, without values */
  listFailed: {
    given: object;
    answer: readonly {
      table_name: string;
      segment: string;
      line: number;
      app_id: string;
      bytes: number | string;
      text_hash: string;
      error_code: number;
      error: string;
      failed_at: string;
    }[];
  };
  /** Send the refused rows again */
  retryFailed: { given: object; answer: { retried: number; left: number; servers_away?: readonly number[] } };
  /** The index of idempotency keys */
  showKeyIndex: { given: object; answer: ShowKeyIndexAnswer };
  /** Make the workers add the keys of all stored rows to the index again; it shows their progress */
  rebuildKeyIndex: { given: object; answer: ShowKeyIndexAnswer };
  /** Which ClickHouse server has which shard, how large it is, and what is waiting for it */
  listShards: {
    given: object;
    answer: readonly {
      shard: number;
      server: number;
      rows: number | null;
      bytes: number | null;
      backlog_rows: number;
      backlog_bytes: number;
      moving_to: number | null;
      moved_rows: number | null;
    }[];
  };
  /** Load the state into an emptied Redis */
  restore: { given: object; answer: { state: string; changes_kept_until?: string | null } };
  /** Submit a deletion */
  submitDeletionOfAccount: {
    given: { account_id: string } & {
      users: readonly { identity?: string; user_id?: number | string; anonymous_id?: string }[];
      erase?: 'now';
      dry_run?: boolean;
      reference?: string;
      suppress?: boolean;
      case_id?: string;
    };
    answer: DeletionSubmitted;
  };
};

export type DeletionOperations = {
  /** Delete users */
  submitDeletion: { given: Deletion; answer: DeletionSubmitted | DeletionPreview };
  /** The progress of a deletion */
  readDeletionStatus: { given: { deletion_request_id: string }; answer: DeletionStatus };
  /** What was found of each user, by position in the submitted list */
  listDeletedUsers: { given: { deletion_request_id: string; cursor?: string }; answer: DeletionUsers };
  /** What was found of users whom you name */
  lookUpDeletedUsers: { given: { deletion_request_id: string } & DeletionLookup; answer: DeletionLookedUp };
  /** The signed certificate of a complete deletion */
  readDeletionCertificate: { given: { deletion_request_id: string }; answer: DeletionCertificate };
  /** The account's deletions, the newest first */
  listDeletions: {
    given: { state?: '' | ListDeletionsState; reference?: string; cursor?: string };
    answer: DeletionList;
  };
  /** The public key of certificates */
  readSigningKey: { given: object; answer: SigningKey };
  /** Suppress users, or free them */
  suppressUsers: { given: Suppression; answer: Suppressed };
  /** Whether a user is suppressed, or how many are */
  lookUpSuppression: {
    given: { identity?: string; user_id?: string; anonymous_id?: string };
    answer: SuppressionOfUser | SuppressionCounts;
  };
  /** Whether users are suppressed */
  lookUpSuppressions: { given: SuppressionLookup; answer: SuppressionLookedUp };
  /** Ask what is held about users */
  submitExport: { given: Export; answer: UserExport };
  /** Whether an export can be read */
  readExportStatus: { given: { user_export_id: string }; answer: UserExport };
};
