// How the primary behind sentinels is found, and when it is looked for again. All sentinels are asked at once, and the newest answer
// counts. The library would take the first answer, perhaps from a sentinel that was cut off together with a former primary: then
// nothing would be stored until the network is whole again.

import type { RedisSentinels } from '../config.js';
import { type Redis, type RedisOptions, SentinelConnector } from '../packages/ioredis.js';

/** How long a sentinel has for its answer. */
const answerMsMax = 500;

export function bySentinels(
  { sentinels, name, tls, username, password }: RedisSentinels,
  retryMs: (attempt: number) => number,
): RedisOptions {
  let leftMs = Number.NEGATIVE_INFINITY;
  /** A server that is no longer the primary refuses writes. */
  const leaves = ({ message }: Error) => {
    if (message.startsWith('READONLY')) return true;
    // It may have been cut off from its replicas, or only lack them.
    if (!message.startsWith('NOREPLICAS') || performance.now() - leftMs < 2_000) return false;
    leftMs = performance.now();
    return true;
  };
  const credentials = password === '' ? {} : { password, sentinelPassword: password };
  const user = username === '' ? {} : { username, sentinelUsername: username };
  return {
    sentinels: [...sentinels],
    name,
    role: 'master',
    ...credentials,
    ...user,
    ...(tls ? { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true } : {}),
    sentinelRetryStrategy: retryMs,
    sentinelReconnectStrategy: retryMs,
    sentinelCommandTimeout: answerMsMax,
    updateSentinels: false,
    reconnectOnError: leaves,
    Connector: createConnector as unknown as NonNullable<RedisOptions['Connector']>,
  };
}

type Endpoint = NonNullable<RedisOptions['sentinels']>[number];
type Address = { readonly host: string; readonly port: number };

/** What we use and replace of the library's connector. */
type Connecting = {
  connectToSentinel(endpoint: Endpoint, more: RedisOptions): Redis;
  resolve(endpoint: Endpoint): Promise<Address>;
};

/** The library calls it with `new`. */
function createConnector(options: RedisOptions): Connecting {
  const connector = new SentinelConnector(options) as unknown as Connecting;
  const { sentinels = [], name = '' } = options as { sentinels?: Endpoint[]; name?: string };
  const ask = async (endpoint: Endpoint) => {
    const sentinel = connector.connectToSentinel(endpoint, { connectTimeout: answerMsMax });
    sentinel.on('error', () => undefined);
    try {
      const [master, [host, port]] = await Promise.all([
        sentinel.call('SENTINEL', 'MASTER', name) as Promise<string[]>,
        sentinel.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name) as Promise<[string, string]>,
      ]);
      const epoch = Number(master[master.indexOf('config-epoch') + 1]);
      return { epoch, address: { host, port: Number(port) } };
    } finally {
      sentinel.disconnect();
    }
  };
  connector.resolve = async () => {
    const answers = await Promise.allSettled(sentinels.map(ask));
    const found = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
    const [newest] = found.sort((one, other) => other.epoch - one.epoch);
    if (newest === undefined) throw (answers[0] as PromiseRejectedResult).reason;
    return newest.address;
  };
  return connector;
}
