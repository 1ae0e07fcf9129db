// Loads the Lua scripts and runs them by hash. The number in a script's file name is its number of keys.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Redis } from './client.js';
import { classifyRedisFault } from './faults.js';

export type Script = {
  readonly name: string;
  readonly text: string;
  readonly sha: string;
  readonly keys: number;
};

export const scripts = {
  commit: load('commit-3'),
  seal: load('seal-2'),
  forget: load('forget-4'),
  ageClaims: load('age-claims-4'),
  indexable: load('indexable-2'),
  keysIndexed: load('keys-indexed-1'),
  noteRebuild: load('note-rebuild-1'),
  quarantine: load('quarantine-4'),
  burnToken: load('burn-token-1'),
  compressSegment: load('compress-segment-3'),
  writeRegistry: load('write-registry-4'),
  addAuditLine: load('add-audit-line-2'),
  readUnmirrored: load('read-unmirrored-4'),
  mirrored: load('mirrored-2'),
  mirroredDeletions: load('mirrored-deletions-2'),
  reserveNumbers: load('reserve-numbers-1'),
  loadShard: load('load-shard-1'),
  beginLoad: load('begin-load-3'),
  createDeployment: load('create-deployment-5'),
  clearLeftovers: load('clear-leftovers-2'),
  freeKeys: load('free-keys-4'),
  witnessRegistry: load('witness-registry-4'),
  witnessShard: load('witness-shard-1'),
  loadDocuments: load('load-documents-4'),
  loadPendingDeletions: load('load-pending-deletions-8'),
  loadListedDeletions: load('load-listed-deletions-3'),
  loadDueCallbacks: load('load-due-callbacks-3'),
  noteCallback: load('note-callback-3'),
  loadReferences: load('load-references-3'),
  endLoad: load('end-load-4'),
  oldestOutstanding: load('oldest-outstanding-2'),
  fence: load('fence-1'),
  submitDeletion: load('submit-deletion-10'),
  keepDeletionTargets: load('keep-deletion-targets-4'),
  updateDeletion: load('update-deletion-3'),
  completeDeletion: load('complete-deletion-7'),
  loseDeletionTargets: load('lose-deletion-targets-8'),
  endDeletion: load('end-deletion-4'),
  submitExport: load('submit-export-6'),
  endExport: load('end-export-4'),
  issueToken: load('issue-token-3'),
  noteKeyUse: load('note-key-use-3'),
  bookSignIn: load('book-sign-in-2'),
  beginPairing: load('begin-pairing-5'),
  enterPairing: load('enter-pairing-3'),
  renewPairing: load('renew-pairing-2'),
  endPairing: load('end-pairing-3'),
  changeSuppressions: load('change-suppressions-6'),
  forgetJoins: load('forget-joins-2'),
  raiseSuppressions: load('raise-suppressions-1'),
  floorSuppressions: load('floor-suppressions-2'),
  loadSuppressions: load('load-suppressions-5'),
  endLoadSuppressions: load('end-load-suppressions-3'),
  noteRestore: load('note-restore-5'),
  takeTurn: load('take-turn-1'),
  keepTurn: load('keep-turn-1'),
  deleteEqual: load('delete-equal-1'),
  time: load('time-1'),
} as const;

/**
 * Runs a script once. Rejects with the connection's fault; whether the script ran is then unknown.
 * A Redis that does not know the script yet has not run it: it gets the text and is asked again.
 */
export async function runScript(
  redis: Redis,
  script: Script,
  keys: string[],
  args: (string | number | Buffer)[],
): Promise<unknown> {
  try {
    return await redis.evalsha(script.sha, script.keys, ...keys, ...args);
  } catch (error) {
    if (classifyRedisFault(error) !== 'unknown_script') throw error;
    return redis.eval(script.text, script.keys, ...keys, ...args);
  }
}

function load(name: string): Script {
  const text = readFileSync(new URL(`./${name}.lua`, import.meta.url), 'utf8');
  const sha = createHash('sha1').update(text).digest('hex');
  return { name, text, sha, keys: Number(name.slice(name.lastIndexOf('-') + 1)) };
}
