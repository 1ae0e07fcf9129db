// The actions of the audit log that are not commands of administrators, each as pages word it. A command has its own words
// (admin/command.ts).

export const otherActions = {
  accept_invitation: 'accepted an invitation',
  sign_in: 'signed in',
  sign_on: 'signed in by single sign-on',
  sign_out: 'signed out',
  end_session: 'ended a session',
  change_password: 'changed their password',
  set_second_factor: 'turned on their second factor',
  remove_second_factor: 'turned off their second factor',

  watch_device: 'watched a device',
  preview_deletion: 'previewed a deletion',
  propose_deletion: 'proposed a deletion',
  submit_deletion: 'asked for a deletion',
  read_export: 'downloaded an export',
  submit_export: 'asked for an export',
  suppress_users: 'suppressed users',
  free_users: 'lifted the suppression of users',
} as const;

/** The name of a command's action. */
export type CommandAction = string & { readonly isOfCommand: true };

export type AuditAction = keyof typeof otherActions | CommandAction;
