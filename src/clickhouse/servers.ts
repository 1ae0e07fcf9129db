// The ClickHouse servers of the deployment, in the order of CLICKHOUSE_URL, and which of them each shard stores to. The first is the
// primary server: besides its shards' rows it has what belongs to no shard (the registry's second copy, deletion requests with their
// targets and evidence, suppressed names, the audit log, the ledger). `serversOf` finds the connections to all servers from the
// client of the primary one. A process with one server has no table of shards, unless the deployment has several servers by now: then
// it refuses what needs the others.

import { Unavailable } from '../contract/errors.js';
import { repeat } from '../repeat.js';
import { type ClickHouseClient, type ClickHouseOptions, connectClickHouse, endingAfter } from './client.js';
import { guardServers, WrongServer } from './right-servers.js';

export type ShardTable = {
  /** By shard: the index in CLICKHOUSE_URL of the server that has its rows. */
  readonly servers: readonly number[];
  /** Shards whose rows are being copied to another server. Nothing is stored in them. */
  readonly moving: readonly number[];
  /** Shards that are being moved, and shards whose old server still has rows. Nothing in them is deleted. */
  readonly unsettled: readonly number[];
};

/** The primary server first. */
export type AllServers = readonly [ClickHouseClient, ...ClickHouseClient[]];

export type Servers = Readonly<ReturnType<typeof createServers>>;

/** CLICKHOUSE_URL of this process does not name the server that has a shard. */
export class ServerNotNamed extends Error {
  readonly code = 'server_not_named';
}

/** A sentence for people about each server that was set back. */
export function setBackIn({ setBack }: Servers): string[] {
  return setBack().map(
    (number) =>
      `clickhouse server ${number}: it was set back to older data, so records wait: run "npm run admin -- state compare"`,
  );
}

/** The server lacks rows that were stored in it. Anything counted on it now would wrongly be taken as complete. */
export class ClickHouseSetBack extends Unavailable {
  constructor(numbers: readonly number[]) {
    super(
      `ClickHouse server ${numbers.join(', ')} was set back to older data: "npm run admin -- state recover"`,
    );
  }
}

const known = new WeakMap<ClickHouseClient, Servers>();

/** Makes a client for each server, without waiting for connections, and returns the primary one. Closing it also closes the others. */
export function connectServers({
  urls,
  ...options
}: Omit<ClickHouseOptions, 'url'> & { readonly urls: readonly string[] }): ClickHouseClient {
  const [primary, ...others] = urls.map((url) => connectClickHouse({ ...options, url }));
  if (primary === undefined) throw new Error('CLICKHOUSE_URL names no server');
  if (others.length === 0) return primary;
  known.set(primary, createServers([primary, ...others]));
  const closePrimary = primary.close.bind(primary);
  primary.close = async () => {
    await Promise.all([closePrimary(), ...others.map((other) => other.close())]);
  };
  return primary;
}

/** All servers of a deployment, by the connection to its primary one. */
export function serversOf(primary: ClickHouseClient): Servers {
  let servers = known.get(primary);
  if (servers === undefined) {
    servers = createServers([primary]);
    known.set(primary, servers);
  }
  return servers;
}

function createServers(all: AllServers) {
  const isOne = all.length === 1;
  let current: ShardTable | undefined;
  let epoch: string | undefined;
  let setBack: readonly number[] = [];
  const { compare, misconfigurations } = guardServers(
    all,
    () => !isOne || current !== undefined,
    () => epoch,
  );
  const table = () => {
    if (current === undefined && !isOne)
      throw new Error('it is not known yet which ClickHouse server has which shard');
    return current;
  };
  const numberOf = (shard: number) => {
    const known = table();
    const number = known === undefined ? 0 : known.servers[shard];
    if (number === undefined) throw new Error(`there is no shard ${shard}`);
    return number;
  };
  return {
    all,
    isOne,
    /** The table as last set; undefined if there is none and CLICKHOUSE_URL names one server. Throws until it was read. */
    table,
    setTable: (next: ShardTable) => {
      current = next;
    },
    /** Sets which deployment Redis has: servers of another one are refused. */
    setEpoch: (next: string) => {
      epoch = next;
    },
    /** The index of a shard's server, which CLICKHOUSE_URL may lack. */
    numberOf,
    /** Throws ServerNotNamed. */
    ofShard: (shard: number): ClickHouseClient => {
      const number = numberOf(shard);
      const client = all[number];
      if (client === undefined) throw new ServerNotNamed(notNamed(all.length, shard, number));
      return client;
    },
    /** Whether CLICKHOUSE_URL names the server of a shard. */
    isNamed: (shard: number) => all[numberOf(shard)] !== undefined,
    isMoving: (shard: number) => table()?.moving.includes(shard) ?? false,
    isUnsettled: (shard: number) => table()?.unsettled.includes(shard) ?? false,
    /** What is wrong with this process's CLICKHOUSE_URL, by the last checks; empty if nothing is. */
    misconfigurations: (): readonly string[] => {
      const numbers = current?.servers ?? [];
      const shard = numbers.findIndex((number) => number >= all.length);
      return [
        ...(shard === -1 ? [] : [notNamed(all.length, shard, numbers[shard] as number)]),
        ...misconfigurations(),
      ];
    },
    /** Indexes of the servers that were set back to older data (registry/witness.ts). */
    setBack: () => setBack,
    noteSetBack: (numbers: readonly number[]) => {
      setBack = numbers;
    },
    compare,
  };
}

/** The message that CLICKHOUSE_URL lacks a shard's server. */
export function notNamed(named: number, shard: number, number: number): string {
  return `CLICKHOUSE_URL names ${named} server${named === 1 ? '' : 's'}, but shard ${shard} is stored on server ${number} (from 0): name all servers, in their order`;
}

/** A server that takes longer counts as unreachable; work that needs it waits and checks again. */
const answerMsMax = 5_000;

/**
 * Indexes of the servers that answer now, also answered at the last check, and belong at their index. A single server is not checked: its
 * caller notices the failure. `mayBeEmpty`: a server without the database counts as well.
 */
export async function reachableServers(servers: Servers, mayBeEmpty = false): Promise<ReadonlySet<number>> {
  if (servers.isOne) return new Set([0]);
  const seen = await checkAll(servers);
  return new Set(
    seen.flatMap((state, number) => (state === 'right' || (mayBeEmpty && state === 'empty') ? [number] : [])),
  );
}

/** The connections to the reachable servers, each with its index. */
export async function reachableClients(primary: ClickHouseClient): Promise<[number, ClickHouseClient][]> {
  const servers = serversOf(primary);
  const reachable = await reachableServers(servers);
  return [...servers.all.entries()].filter(([number]) => reachable.has(number));
}

export function checkAll(servers: Servers): Promise<State[]> {
  return Promise.all(servers.all.map((client, index) => checkOrRemember(servers, client, index)));
}

export type ServersWatch = ReturnType<typeof watchServers>;

const watchEveryMs = 2_000;

/** Checks every two seconds which servers answer. */
export function watchServers(primary: ClickHouseClient) {
  const servers = serversOf(primary);
  let away: readonly number[] = [];
  const check = async () => {
    const seen = servers.isOne ? [await askSingle(primary)] : await checkAll(servers);
    away = seen.flatMap((state, number) => (state === 'away' || state === 'empty' ? [number] : []));
  };
  const { stop } = repeat({ work: check, everyMs: watchEveryMs });
  return {
    /** For health checks: a line about each server that did not answer the last time. */
    away: () =>
      away.map((number) =>
        servers.isOne
          ? 'clickhouse: records wait in Redis until it answers'
          : `clickhouse server ${number}: records of its shards wait`,
      ),
    close: () => void stop(),
  };
}

/** A single server cannot be confused with another one. */
async function askSingle(primary: ClickHouseClient): Promise<State> {
  return primary.command({ query: 'SELECT 1', ...endingAfter(answerMsMax) }).then(
    () => 'right',
    () => 'away',
  );
}

/** `empty`: it answers but lacks the database. `wrong`: another server belongs at its index. */
type State = 'right' | 'empty' | 'away' | 'wrong';
/** What the last check of a server showed, and when; and the check that is running. */
type Seen = { state: State; checkedAtMs: number; check: Promise<State> | undefined };
const seenOf = new WeakMap<ClickHouseClient, Seen>();

/** An unreachable server is checked again this long after the last check, in the background. */
const awayCheckedEveryMs = 1_000;
/** An older check is out of date: the caller waits for a new one. */
const awayKnownMs = 2 * answerMsMax;

/**
 * A hanging server would delay every step of a deletion round by its timeout. So a server that was unreachable at the last check
 * counts as unreachable, and is checked again in the background.
 */
async function checkOrRemember(servers: Servers, client: ClickHouseClient, index: number): Promise<State> {
  const seen = seenOf.get(client) ?? {
    state: 'right',
    checkedAtMs: Number.NEGATIVE_INFINITY,
    check: undefined,
  };
  seenOf.set(client, seen);
  const agoMs = performance.now() - seen.checkedAtMs;
  const isKnownAway = seen.state === 'away' && agoMs < awayKnownMs;
  if (isKnownAway && agoMs < awayCheckedEveryMs) return 'away';
  seen.check ??= ask(servers, index).then((state) => {
    Object.assign(seen, { state, checkedAtMs: performance.now(), check: undefined });
    return state;
  });
  return isKnownAway ? 'away' : seen.check;
}

/** Uses a statement, since /ping does not check the password. */
async function ask({ compare }: Servers, index: number): Promise<State> {
  try {
    return await compare(index, AbortSignal.timeout(answerMsMax));
  } catch (error) {
    return error instanceof WrongServer ? 'wrong' : 'away';
  }
}
