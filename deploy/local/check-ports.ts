// Checks, before anything starts, that every port that the start needs is free.

import type { Config } from '../../src/config.js';
import { placesOf } from './clickhouse/places.js';
import { probePort } from './ports.js';
import { StartError } from './start-error.js';

/** Throws StartError, which names the variable, if a port is taken or assigned twice. */
export async function checkPorts(config: Config): Promise<void> {
  const ports = [
    { variable: 'PORT', host: config.host, port: config.port },
    { variable: 'ADMIN_PORT', host: config.adminHost, port: config.adminPort },
    ...redisPorts(config).map((port) => ({ variable: 'REDIS_PORT', host: '127.0.0.1', port })),
    ...(config.clickhouseEmbedded
      ? placesOf(config).flatMap(({ httpPort, tcpPort }) => [
          { variable: 'CLICKHOUSE_PORT', host: '127.0.0.1', port: httpPort },
          { variable: 'CLICKHOUSE_TCP_PORT', host: '127.0.0.1', port: tcpPort },
        ])
      : []),
  ];
  for (const [index, { variable, host, port }] of ports.entries()) {
    const earlier = ports.slice(0, index).find((other) => other.port === port);
    if (earlier !== undefined) {
      throw new StartError(`${variable} and ${earlier.variable} are both ${port}: they need different ports`);
    }
    const answer = await probePort(host, port);
    if (answer === 'free') continue;
    if (answer === 'taken') {
      throw new StartError(`${variable} ${port} is taken: stop what listens on it, or set ${variable}`);
    }
    if (answer === 'EADDRNOTAVAIL' || answer === 'ENOTFOUND') {
      const hostVariable = variable === 'ADMIN_PORT' ? 'ADMIN_HOST' : 'HOST';
      throw new StartError(`${hostVariable} ${host} is not an address of this machine`);
    }
    throw new StartError(`cannot listen on ${variable} ${port} (${answer})`);
  }
}

/** The ports of the Redis servers and their sentinels. */
function redisPorts({ redisEmbedded, redisPort, redisNodes, redisSentinels }: Config): number[] {
  if (!redisEmbedded) return [];
  const count = redisNodes + (redisSentinels?.sentinels.length ?? 0);
  return Array.from({ length: count }, (_, index) => redisPort + index);
}
