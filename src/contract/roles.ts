// The roles of people. It imports nothing, since browsers load it too.

/** `operator`: of all accounts. The others are of one account. */
export type Role = 'operator' | AccountRole;
export type AccountRole = 'administrator' | 'privacy' | 'viewer';

export const roles: readonly Role[] = ['operator', 'administrator', 'privacy', 'viewer'];

/** Which roles of an account may do something in their account. */
export type Allowed = readonly AccountRole[];

export const everyone: Allowed = ['administrator', 'privacy', 'viewer'];
export const administrators: Allowed = ['administrator'];
export const privacyOfficers: Allowed = ['privacy'];
/** Everybody but viewers, who only look. */
export const integrators: Allowed = ['administrator', 'privacy'];
/** For what concerns the deployment, or all accounts. */
export const operatorsOnly: Allowed = [];

/** Operators may do everything, in every account. */
export function mayDo(role: Role, allowed: Allowed): boolean {
  return role === 'operator' || allowed.includes(role);
}
