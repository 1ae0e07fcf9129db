// The roles of people, and what each may do: the administration's commands by name. The service decides by this table, and
// the console shows what it allows. It imports nothing, since browsers load it too.

/** `operator`: of all accounts. The others are of one account. */
export type Role = 'operator' | AccountRole;
export type AccountRole = 'administrator' | 'privacy' | 'viewer';

export const roles: readonly Role[] = ['operator', 'administrator', 'privacy', 'viewer'];

const everyone: readonly AccountRole[] = ['administrator', 'privacy', 'viewer'];
const administrators: readonly AccountRole[] = ['administrator'];
const privacyOfficers: readonly AccountRole[] = ['privacy'];
/** Not those who only look. */
const integrators: readonly AccountRole[] = ['administrator', 'privacy'];
/** For commands about the deployment, or about all accounts. */
const operatorsOnly: readonly AccountRole[] = [];

/** Which roles of an account may give a command in their account. Operators may give all, in every account. */
export const rights = {
  listAccounts: everyone,
  createAccount: operatorsOnly,
  addEnvironment: administrators,
  setEnvironment: administrators,
  showEnvironment: everyone,
  showStats: everyone,
  listRejected: everyone,
  showRejections: everyone,

  createKey: administrators,
  listKeys: everyone,
  rotateKey: administrators,
  revokeKey: administrators,
  showKey: everyone,
  createWriteKey: administrators,
  listWriteKeys: everyone,
  revokeWriteKey: administrators,

  /** Privacy officers see their own actions. */
  listAudit: integrators,
  invitePerson: administrators,
  listPeople: administrators,
  removePerson: administrators,

  showCallback: everyone,
  setCallback: administrators,
  removeCallback: administrators,
  testCallback: administrators,
  showVerified: everyone,

  submitDeletion: privacyOfficers,
  listDeletions: everyone,
  showDeletion: everyone,
  listDeletionUsers: everyone,
  showCertificate: everyone,
  endDeletion: operatorsOnly,

  submitExport: privacyOfficers,
  listExports: privacyOfficers,
  readExport: privacyOfficers,

  showOverview: everyone,
  showTraffic: everyone,
  showDeployment: operatorsOnly,

  listEventNames: everyone,
  listEventProperties: everyone,
  watchLive: integrators,
  showLive: integrators,

  lookUpUser: privacyOfficers,
  countUserEvents: privacyOfficers,
  findSimilarUsers: privacyOfficers,
  readUserEvents: privacyOfficers,
  suppressUsers: privacyOfficers,
  freeUsers: privacyOfficers,
  showSuppressed: privacyOfficers,

  listFailed: operatorsOnly,
  retryFailed: operatorsOnly,
  showKeyIndex: operatorsOnly,
  rebuildKeyIndex: operatorsOnly,
  listShards: operatorsOnly,
  moveShards: operatorsOnly,
  balanceShards: operatorsOnly,
  createBackup: operatorsOnly,
  listBackups: operatorsOnly,
  restoreBackup: operatorsOnly,
  restore: operatorsOnly,
  showState: operatorsOnly,
  recoverState: operatorsOnly,
  bootstrap: operatorsOnly,
} as const satisfies Readonly<Record<string, readonly AccountRole[]>>;

export type Right = keyof typeof rights;

/** Whether a role may give a command, people of an account in their own account only. A command without a row is for operators. */
export function mayDo(role: Role, command: string): boolean {
  if (role === 'operator') return true;
  const allowed: readonly AccountRole[] = Object.hasOwn(rights, command)
    ? rights[command as Right]
    : operatorsOnly;
  return allowed.includes(role);
}
