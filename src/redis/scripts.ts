// Loads the Lua scripts and runs them by hash. The number in a script's file name is its number of keys.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Redis } from '../packages/ioredis.js';
import type { Redis as Connection } from './client.js';
import { classifyRedisFault } from './faults.js';
import { areReplicasDemanded, onReplicas } from './replicas.js';

export type Script = {
  readonly name: string;
  readonly text: string;
  readonly sha: string;
  readonly keys: number;
  /** Whether its reply acknowledges something, or lets its caller act elsewhere: then the required replicas must have it first. */
  readonly isConfirmed: boolean;
};

export const scripts = {
  commit: confirmed('commit-3'),
  takeOverRegistry: confirmed('take-over-registry-6'),
  takeOverShard: confirmed('take-over-shard-1'),
  tick: confirmed('tick-4'),
  forget: load('forget-4'),
  countTerms: load('count-terms-2'),
  booked: load('booked-6'),
  noteLateRepeats: confirmed('note-late-repeats-3'),
  ageClaims: load('age-claims-4'),
  findClaims: confirmed('find-claims-5'),
  keysIndexed: confirmed('keys-indexed-1'),
  noteRebuild: confirmed('note-rebuild-1'),
  replaceSegment: load('replace-segment-4'),
  burnToken: load('burn-token-1'),
  writeRegistry: confirmed('write-registry-4'),
  addAuditLine: confirmed('add-audit-line-4'),
  readUncopied: confirmed('read-uncopied-8'),
  copied: load('copied-7'),
  reserveNumbers: confirmed('reserve-numbers-1'),
  loadShard: confirmed('load-shard-1'),
  beginLoad: confirmed('begin-load-3'),
  load: confirmed('load-2'),
  freeKeys: confirmed('free-keys-4'),
  witnessRegistry: confirmed('witness-registry-4'),
  witnessShard: confirmed('witness-shard-1'),
  noteCallback: confirmed('note-callback-3'),
  endLoad: confirmed('end-load-4'),
  backlog: load('backlog-4'),
  outstanding: confirmed('outstanding-2'),
  fence: confirmed('fence-1'),
  submitDeletion: confirmed('submit-deletion-11'),
  keepDeletionTargets: load('keep-deletion-targets-4'),
  updateDeletions: confirmed('update-deletions-5'),
  completeDeletion: confirmed('complete-deletion-8'),
  loseDeletionTargets: confirmed('lose-deletion-targets-8'),
  endDeletion: confirmed('end-deletion-4'),
  submitExport: confirmed('submit-export-6'),
  endExport: confirmed('end-export-4'),
  forgetEarlierDeletions: load('forget-earlier-deletions-1'),
  issueToken: confirmed('issue-token-3'),
  noteKeyUse: load('note-key-use-3'),
  bookSignIn: load('book-sign-in-2'),
  beginPairing: load('begin-pairing-5'),
  enterPairing: load('enter-pairing-2'),
  renewPairing: load('renew-pairing-1'),
  endPairing: load('end-pairing-2'),
  changeSuppressions: confirmed('change-suppressions-8'),
  forgetJoins: load('forget-joins-2'),
  floorSuppressions: confirmed('floor-suppressions-2'),
  noteRestore: confirmed('note-restore-5'),
  takeTurn: confirmed('take-turn-1'),
  keepTurn: confirmed('keep-turn-1'),
  time: load('time-1'),
} as const;

/**
 * Runs a script once. Rejects with the connection's fault, or NotOnReplicas; whether the script ran is then unknown.
 * A Redis that does not know the script yet has not run it: it gets the text and is asked again.
 */
export async function runScript(
  redis: Connection,
  script: Script,
  keys: string[],
  args: (string | number | Buffer)[],
): Promise<unknown> {
  const isConfirmed = script.isConfirmed && areReplicasDemanded(redis);
  const send = <Reply>(command: () => Promise<Reply>) =>
    isConfirmed ? onReplicas(redis, keys[0] ?? '', command) : command();
  // A script that the server does not know would wait for replicas twice. On a cluster LOAD would go to an arbitrary server.
  if (isConfirmed && redis instanceof Redis && !knownBy(redis).has(script.sha)) {
    await redis.script('LOAD', script.text);
    knownBy(redis).add(script.sha);
  }
  try {
    return await send(() => redis.evalsha(script.sha, script.keys, ...keys, ...args));
  } catch (error) {
    if (classifyRedisFault(error) !== 'unknown_script') throw error;
    return send(() => redis.eval(script.text, script.keys, ...keys, ...args));
  }
}

const known = new WeakMap<Connection, Set<string>>();

/** The scripts that this process has loaded into the server of a connection. */
function knownBy(redis: Connection): Set<string> {
  const scriptsKnown = known.get(redis) ?? new Set();
  if (!known.has(redis)) redis.on('close', () => scriptsKnown.clear());
  known.set(redis, scriptsKnown);
  return scriptsKnown;
}

function confirmed(name: string): Script {
  return { ...load(name), isConfirmed: true };
}

function load(name: string): Script {
  const text = readFileSync(new URL(`./${name}.lua`, import.meta.url), 'utf8');
  const sha = createHash('sha1').update(text).digest('hex');
  return { name, text, sha, keys: Number(name.slice(name.lastIndexOf('-') + 1)), isConfirmed: false };
}
