// The command `redis` of deploy/RUNBOOK.md. It sends one command to this deployment's Redis, over the service's own connection, and prints
// the answer as redis-cli does without a terminal. In a cluster, any server answers a command that has no key.

import { readConfigBesideStart, readConfigOrExit } from '../config.js';
import { createLog } from '../log.js';
import { faultInWords, withRedis } from './own-stores.js';

const config = readConfigOrExit(readConfigBesideStart);
try {
  const [command, ...args] = process.argv.slice(2);
  if (command === undefined) throw new Error('a command is needed, such as: info memory');
  await withRedis(config, createLog('redis', 'silent'), async (redis) => {
    process.stdout.write(`${textOf(await redis.call(command, ...args))}\n`);
  });
} catch (error) {
  const words = faultInWords(error, config) ?? (error instanceof Error ? error.message : String(error));
  process.stderr.write(`${words}\n`);
  process.exitCode = 1;
}

function textOf(reply: unknown): string {
  if (Array.isArray(reply)) return reply.map(textOf).join('\n');
  return reply === null ? '' : String(reply);
}
