// The actions of the audit log, each with its words for people. It imports nothing, since browsers load it too.

export type AuditAction = keyof typeof auditActions;

export const auditActions = {
  create_account: 'created an account',
  add_environment: 'added an environment',
  set_environment: 'changed the settings of an environment',

  create_key: 'created an API key',
  rotate_key: 'rotated an API key',
  revoke_key: 'revoked an API key',
  create_write_key: 'created a write key',
  revoke_write_key: 'revoked a write key',
  set_callback: 'set the callback',
  remove_callback: 'removed the callback',
  test_callback: 'tested the callback',

  invite_person: 'invited a person',
  remove_person: 'removed a person',
  accept_invitation: 'accepted an invitation',
  sign_in: 'signed in',
  sign_on: 'signed in by single sign-on',
  sign_out: 'signed out',
  end_session: 'ended a session',
  change_password: 'changed their password',
  set_second_factor: 'turned on their second factor',
  remove_second_factor: 'turned off their second factor',

  look_up_user: 'looked up a user',
  count_user_events: 'counted the events of a user',
  find_similar_users: 'looked for similar users',
  read_user_events: 'read the events of a user',
  watch_live: 'watched events arrive',
  watch_device: 'watched a device',
  preview_deletion: 'previewed a deletion',
  submit_deletion: 'asked for a deletion',
  end_deletion: 'ended a deletion that cannot be carried out',
  submit_export: 'asked for an export',
  read_export: 'downloaded an export',
  suppress_users: 'suppressed users',
  free_users: 'freed suppressed users',

  retry_failed: 'sent failed rows again',
  rebuild_key_index: 'rebuilt the index of keys',
  move_shards: 'moved shards',
  balance_shards: 'balanced shards',
  create_backup: 'made a backup',
  restore_backup: 'restored a backup',
  restore: 'restored the state of Redis',
  recover_state: 'went on with a ClickHouse that was set back',
  bootstrap: 'loaded or created the state at a start',
} as const;
