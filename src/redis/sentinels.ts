// How the primary behind sentinels is found, and when it is looked for again. All sentinels are asked at once, and the newest answer
// counts. The library would take the first answer, perhaps from a sentinel that was cut off together with a former primary: then
// nothing would be stored until the network is whole again.
//
// While sentinels replace a primary that is alive, because somebody asked for that or because it stood still for a while, it keeps some
// replicas for up to a second, and those confirm what the next primary will not have. So the sentinels are also asked after each
// confirmation whether the server still is the primary. The sentinel that replaces it may be the only one that knows. So a sentinel that
// has just become silent counts as if it were replacing the server.

import type { RedisSentinels } from '../config-redis.js';
import { type Redis, type RedisOptions, SentinelConnector } from '../packages/ioredis.js';
import { sharing } from '../wait.js';

/** How long a sentinel may take to answer; after a confirmation less, since a commit waits for the answer. */
const answerMsMax = 500;
const confirmMsMax = 400;
/** A sentinel that is silent for longer counts as gone. The others undo what it had begun, unless it comes back. */
const silentMsMax = 3_000;

/** The library's options for a connection to the primary that the sentinels name. */
export function bySentinels(
  { sentinels, name, tls, username, password }: RedisSentinels,
  retryMs: (attempt: number) => number,
): RedisOptions {
  let leftMs = Number.NEGATIVE_INFINITY;
  /** Whether an error shows that the server may no longer be the primary. */
  const shouldReconnect = ({ message }: Error) => {
    if (message.startsWith('READONLY')) return true;
    // The server may have been cut off from its replicas, or merely lack some.
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
    reconnectOnError: shouldReconnect,
    Connector: createConnector as unknown as NonNullable<RedisOptions['Connector']>,
  };
}

type Endpoint = NonNullable<RedisOptions['sentinels']>[number];
type Address = { readonly host: string; readonly port: number };

/** The members of the library's connector that are used or replaced here. */
type Connecting = {
  connectToSentinel(endpoint: Endpoint, more: RedisOptions): Redis;
  resolve(endpoint: Endpoint): Promise<Address>;
  connect(report: unknown): Promise<unknown>;
  /** Listens to the sentinels for the next take-over. */
  readonly failoverDetector: { cleanup(): void } | null;
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
    resolved.set(connector, newest.address);
    return newest.address;
  };
  // An announcement that was heard during the last connection must not end the next one while it looks for the primary: the library would
  // take it for closed and never connect again.
  const connectAnew = connector.connect.bind(connector);
  connector.connect = (report) => {
    connector.failoverDetector?.cleanup();
    return connectAnew(report);
  };
  return connector;
}

/** Where a connector has found the primary last. */
const resolved = new WeakMap<Connecting, Address>();

/**
 * What a sentinel says: which server is the primary, and the address and state of the server that it watches. While it replaces a server,
 * it names the next primary as soon as that is promoted, but still watches the former one.
 */
type Opinion = {
  readonly primary: string;
  readonly epoch: number;
  readonly described: string;
  readonly flags: readonly string[];
};

/** `isWhole`: no sentinel has just become silent. */
type Answers = { readonly opinions: readonly Opinion[]; readonly isWhole: boolean };

/** Connections to the sentinels, which all connections of a process to their primary share. */
type Panel = {
  readonly name: string;
  readonly members: readonly Redis[];
  /** Settles with answers to a question that is asked after the call. */
  readonly ask: () => Promise<Answers>;
  users: number;
};

/** When each connection to a sentinel had its last answer, or was begun. */
const heardMs = new WeakMap<Redis, number>();

/** The panels, by the primary's name and the addresses of the sentinels. */
const panels = new Map<string, Panel>();
const followed = new WeakMap<Redis, Panel>();

const connectorOf = (redis: Redis) => (redis as unknown as { readonly connector: Connecting }).connector;

/** From now on `isStillPrimary` asks the sentinels of a connection, until it ends. */
export function followSentinels(redis: Redis): void {
  const { sentinels, name = '' } = redis.options;
  if (!sentinels) return;
  const key = JSON.stringify([name, sentinels]);
  const connector = connectorOf(redis);
  const panel =
    panels.get(key) ??
    createPanel(
      name,
      sentinels.map((sentinel) => memberOf(connector, sentinel)),
    );
  panel.users += 1;
  panels.set(key, panel);
  followed.set(redis, panel);
  redis.once('end', () => {
    panel.users -= 1;
    if (panel.users > 0) return;
    panels.delete(key);
    for (const member of panel.members) member.disconnect();
  });
}

function createPanel(name: string, members: readonly Redis[]): Panel {
  return { name, members, ask: sharing(() => askAll(name, members)), users: 0 };
}

function memberOf(connector: Connecting, sentinel: Endpoint): Redis {
  const member = connector.connectToSentinel(sentinel, {
    connectTimeout: answerMsMax,
    commandTimeout: confirmMsMax,
    // A sentinel whose host is gone is waited for once.
    socketTimeout: confirmMsMax,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    retryStrategy: (attempt) => Math.min(50 * attempt, 500),
  });
  // A sentinel that never answered may also be the one that replaces the primary.
  heardMs.set(member, performance.now());
  return member.on('error', ({ code }: NodeJS.ErrnoException) => {
    // Its process has ended, so it replaces nobody.
    if (code === 'ECONNREFUSED') heardMs.delete(member);
  });
}

/** Whether a majority of the sentinels finds nothing wrong with the server that a connection has now, and none is replacing it. */
export async function isStillPrimary(redis: Redis): Promise<boolean> {
  const panel = followed.get(redis);
  if (panel === undefined) return true;
  // While they answer, the connection may find another server.
  const address = resolved.get(connectorOf(redis));
  const server = address && textOf(address.host, address.port);
  const { opinions, isWhole } = await panel.ask();
  const hasFlag = (opinion: Opinion, flags: readonly string[]) =>
    opinion.described === server && opinion.flags.some((flag) => flags.includes(flag));
  const ours = opinions.filter(({ primary }) => primary === server);
  const epoch = Math.max(...ours.map((each) => each.epoch));
  // A sentinel that was cut off from the others may still name a former primary, with an older epoch. One without an epoch counts as newer.
  const isReplaced =
    opinions.some((each) => each.primary !== server && !(each.epoch < epoch)) ||
    ours.some((each) => hasFlag(each, ['failover_in_progress']));
  const satisfied = ours.filter((each) => !hasFlag(each, ['s_down', 'o_down', 'disconnected']));
  return isWhole && !isReplaced && satisfied.length > panel.members.length / 2;
}

async function askAll(name: string, members: readonly Redis[]): Promise<Answers> {
  const answers = await Promise.allSettled(members.map((member) => opinionOf(member, name)));
  const silentSinceMs = performance.now() - silentMsMax;
  return {
    opinions: answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : [])),
    isWhole: answers.every(
      ({ status }, at) =>
        status === 'fulfilled' ||
        !((heardMs.get(members[at] as Redis) ?? Number.NEGATIVE_INFINITY) > silentSinceMs),
    ),
  };
}

async function opinionOf(sentinel: Redis, name: string): Promise<Opinion> {
  const master = (await sentinel.call('SENTINEL', 'MASTER', name)) as string[];
  heardMs.set(sentinel, performance.now());
  const field = (of: string) => String(master[master.indexOf(of) + 1]);
  const described = textOf(field('ip'), field('port'));
  const flags = field('flags').split(',');
  // It may name another server only while it replaces one.
  const primary = flags.includes('failover_in_progress') ? await primaryBy(sentinel, name) : described;
  return { primary, epoch: Number(field('config-epoch')), described, flags };
}

async function primaryBy(sentinel: Redis, name: string): Promise<string> {
  const [host, port] = (await sentinel.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name)) as [string, string];
  return textOf(host, port);
}

function textOf(host: string, port: string | number): string {
  return `${host} ${port}`;
}
