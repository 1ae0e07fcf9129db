// A process that stalls while Redis answers its commit.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commits } from '../../src/contract/limits.js';
import type { CommitResult } from '../../src/ingest/attempts.js';
import { createCommitter } from '../../src/ingest/commit.js';
import { createLog } from '../../src/log.js';
import { Redis } from '../../src/packages/ioredis.js';
import { connectForCommits, untilReady } from '../../src/redis/client.js';
import { commitBatches } from '../../src/tuning.js';
import { startRedis } from '../harness/services.js';
import { epoch, eventRecord, group, loadShard, noSuppressions, submissionOf } from '../support/shard.js';

test('a reply still counts if it came while the process stood still for longer than a commit may take', async () => {
  const server = await startRedis({ appendfsync: 'no' });
  const admin = new Redis(server.url);
  const log = createLog('test', 'silent');
  const redis = connectForCommits(
    { redisUrl: server.url, redisCluster: false },
    commitBatches.attemptMs,
    log,
  );
  let standsStill = false;
  const committer = createCommitter({
    redis,
    shard: 0,
    suppressions: noSuppressions,
    epoch,
    backlogBytesMax: 1e9,
    segmentBytesMax: 1e6,
    segmentAgeMsMax: 1e6,
    crash: (point) => {
      if (point !== 'commit_sent' || !standsStill) return;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, commits.deadlineMs + 200);
    },
    log,
  });
  const commit = () =>
    new Promise<CommitResult | undefined>((settle) =>
      committer.submit(submissionOf(group([eventRecord('a')])), ([result]) => settle(result)),
    );
  try {
    await loadShard(admin);
    await untilReady(redis, 30_000);
    // Redis does not know the script before the first one.
    await commit();
    standsStill = true;
    assert.deepEqual(await commit(), { kind: 'committed', letters: 's' });
  } finally {
    await committer.close();
    redis.disconnect();
    admin.disconnect();
    await server.remove();
  }
});
