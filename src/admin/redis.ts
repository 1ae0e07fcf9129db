// The command `redis` of deploy/RUNBOOK.md. It sends one command to this deployment's Redis, over the service's own connection, and prints
// the answer as redis-cli does without a terminal. In a cluster, any server answers a command that has no key.

import { readConfigBesideStart, readConfigOrExit } from '../config.js';
import { createLog } from '../log.js';
import { connect, untilReady } from '../redis/client.js';
import { checkDataDir } from './connection-fault.js';

const config = readConfigOrExit(readConfigBesideStart);
const redis = connect(config, createLog('redis', 'silent'));
try {
  const [command, ...args] = process.argv.slice(2);
  if (command === undefined) throw new Error('a command is needed, such as: info memory');
  await untilReady(redis, 5_000);
  await checkDataDir(redis, config);
  process.stdout.write(`${textOf(await redis.call(command, ...args))}\n`);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : 'Redis does not answer'}\n`);
  process.exitCode = 1;
} finally {
  redis.disconnect();
}

function textOf(reply: unknown): string {
  if (Array.isArray(reply)) return reply.map(textOf).join('\n');
  return reply === null ? '' : String(reply);
}
