// Classifies the faults of Redis, in this place only. Redis's errors have no code except the first word of their text.

import { ReplyError } from '../packages/ioredis.js';
import { NotOnReplicas } from './replicas.js';

/**
 * `full`: there is no memory; nothing was written. `refused`: nothing was written, for another reason that Redis gives
 * before a script's first write. `unknown_script`: it has not run, since Redis lacks the script's text. `broken`: any other error that
 * Redis answered: the script failed, perhaps after a write. `not_on_replicas`: it was carried out, and may be lost.
 * `no_answer`: the connection failed, so the command may have been carried out.
 */
export type RedisFault = 'full' | 'refused' | 'unknown_script' | 'broken' | 'not_on_replicas' | 'no_answer';

const refusals =
  /^(?:MISCONF|LOADING|READONLY|NOREPLICAS|BUSY|MASTERDOWN|NOAUTH|NOPERM|CLUSTERDOWN|TRYAGAIN|MOVED|ASK)\b/;
/** What a cluster's client puts before any error when it may not follow redirections. */
const unfollowed = /^Too many Cluster redirections\. Last error: (?<reply>ReplyError: )?(?:Error: )?/;

/** The kind of fault for which a command was rejected. */
export function classifyRedisFault(error: unknown): RedisFault {
  const text = error instanceof Error ? error.message : '';
  const last = unfollowed.exec(text);
  const message = text.slice(last?.[0].length ?? 0);
  if (/^OOM\b/.test(message)) return 'full';
  if (refusals.test(message)) return 'refused';
  if (message.startsWith('NOSCRIPT')) return 'unknown_script';
  if (error instanceof NotOnReplicas) return 'not_on_replicas';
  return error instanceof ReplyError || last?.groups?.reply ? 'broken' : 'no_answer';
}

/** Whether Redis refused a command only for now: a script holds it up, or it is still loading. */
export function isTemporary(error: unknown): boolean {
  return error instanceof Error && /^(?:BUSY|LOADING|MASTERDOWN)\b/.test(error.message);
}

/** What the library says without a connection or an answer. */
const lost =
  /^(?:Connection is closed|Command timed out|Socket timeout|Stream isn't writeable|Reached the max retries|Cluster isn't ready|None of startup nodes|Failed to refresh slots cache)/;

/** Whether a command was rejected because Redis went away or was silent for too long. */
export function isConnectionLost(error: unknown): boolean {
  const text = error instanceof Error ? error.message : '';
  return lost.test(text.slice(unfollowed.exec(text)?.[0].length ?? 0));
}
