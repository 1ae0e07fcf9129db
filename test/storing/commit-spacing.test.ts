// Requests that keep coming share commits, also when Redis answers faster than they come.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CommitResult } from '../../src/ingest/attempts.js';
import { createCommitter } from '../../src/ingest/commit.js';
import { createLog } from '../../src/log.js';
import { Redis } from '../../src/packages/ioredis.js';
import { connectForCommits, untilReady } from '../../src/redis/client.js';
import { commitBatches } from '../../src/tuning.js';
import { startRedis } from '../harness/services.js';
import { epoch, eventRecord, group, loadShard, noSuppressions, submissionOf } from '../support/shard.js';

test('requests that keep coming share commits: each has several times as many as come while Redis answers', async () => {
  const server = await startRedis({ appendfsync: 'no' });
  const admin = new Redis(server.url);
  const log = createLog('test', 'silent');
  const redis = connectForCommits(
    { redisUrl: server.url, redisCluster: false },
    commitBatches.attemptMs,
    log,
  );
  let made = 0;
  const committer = createCommitter({
    redis,
    shard: 0,
    suppressions: noSuppressions,
    epoch,
    backlogBytesMax: 1e9,
    segmentBytesMax: 1e6,
    segmentAgeMsMax: 1e6,
    crash: (point) => {
      if (point === 'commit_packed') made += 1;
    },
    log,
  });
  const submit = () =>
    new Promise<CommitResult | undefined>((settle) =>
      committer.submit(submissionOf(group([eventRecord('a')])), ([result]) => settle(result)),
    );
  try {
    await loadShard(admin);
    await untilReady(redis, 30_000);
    // Redis does not know the script before the first one.
    await submit();
    made = 0;
    const turns = 300;
    const answers: Promise<CommitResult | undefined>[] = [];
    const startedAt = performance.now();
    // Two requests every millisecond, while an answer takes a third of one.
    for (let turn = 0; turn < turns; turn += 1) {
      answers.push(submit(), submit());
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    for (const answer of await Promise.all(answers))
      assert.deepEqual(answer, { kind: 'committed', letters: 's' });
    const ms = performance.now() - startedAt;
    // On a slow machine a turn takes longer than commits are apart, and each may be a commit of its own.
    const most = Math.max(turns / 2, ms / commitBatches.spacingMs + 20);
    assert.ok(made <= most, `${made} commits in ${turns} turns and ${ms} ms`);
  } finally {
    await committer.close();
    redis.disconnect();
    admin.disconnect();
    await server.remove();
  }
});
