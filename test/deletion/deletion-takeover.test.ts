// A worker that is killed while a deletion needs it, with default settings: another worker soon continues.

import assert from 'node:assert/strict';
import { sendEvents, submitAccepted, untilComplete } from '../harness/deletion.js';
import type { Child } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { deletionWorld } from '../support/deletion-world.js';
import { test } from '../support/test.js';

const { sluice, token, main: appId } = await deletionWorld({ env: {} });

/** The time from the kill until the deletion is reported complete. */
const takeoverMsMax = 10_000;

/** When a process ended, by the clock of this one; undefined while it runs. */
function watchEnd(child: Child): () => number | undefined {
  let endedMs: number | undefined;
  void until(() => !child.running, { deadlineMs: 300_000, what: 'the worker is killed' }).then(
    () => {
      endedMs = performance.now();
    },
    () => undefined,
  );
  return () => endedMs;
}

/** Stores an event of each user and has them deleted; settles with the time from the request until the deletion is complete. */
async function deleteUsers(names: readonly string[]): Promise<number> {
  const users = names.map((identity) => ({ identity }));
  await sendEvents(sluice, appId, 'go', users);
  const startedMs = performance.now();
  const requestId = await submitAccepted(sluice, token, users);
  await untilComplete(sluice, token, requestId);
  return performance.now() - startedMs;
}

/**
 * Has one of two workers killed at a point, and measures how long the deletion that needed it is held up. Either worker may take a job, so
 * several deletions may pass before the doomed worker takes one.
 */
async function measureTakeover(point: string, users: (round: number) => readonly string[]): Promise<number> {
  const doomed = await sluice.addWorker({ CRASH_AT: `${point}:1` });
  const endedMs = watchEnd(doomed);
  for (let round = 0; endedMs() === undefined; round += 1) {
    assert.ok(round < 50, 'the worker never took a job');
    await deleteUsers(users(round));
  }
  const completeMs = performance.now();
  assert.equal((await doomed.exited).signal, 'SIGKILL');
  return completeMs - (endedMs() ?? 0);
}

const kills = [
  { point: 'after_mutation', what: 'the worker that runs its round is killed' },
  { point: 'before_insert', what: 'the worker that stores the records before it is killed' },
];

for (const { point, what } of kills) {
  test(`a deletion is complete within 10 s when ${what}`, async (context) => {
    // A busy machine delays some takeovers, but rarely all of them, so the best of three counts.
    let takeoverMs = Number.POSITIVE_INFINITY;
    for (let tries = 0; tries < 3 && takeoverMs > takeoverMsMax; tries += 1) {
      takeoverMs = await measureTakeover(point, (round) => [
        `${point} ${tries} ${round}`,
        `${point} ${tries} ${round} too`,
      ]);
      context.diagnostic(`${Math.round(takeoverMs)} ms`);
      // The takeover may last longer by the time of the work itself.
      if (takeoverMs > takeoverMsMax) takeoverMs -= await deleteUsers([`${point} ${tries}`]);
    }
    assert.ok(takeoverMs <= takeoverMsMax, `${Math.round(takeoverMs)} ms`);
    const left = await sluice.rows(`SELECT 1 FROM events WHERE startsWith(identity, '${point}')`);
    assert.deepEqual(left, [], 'and nothing is left');
  });
}
