// The ClickHouse servers of the deployment, in the order of CLICKHOUSE_URL, and which of them each shard stores to. The first
// one is the home: besides its shards' rows it has what belongs to no shard (the registry's second copy, deletion requests
// with their targets and evidence, suppressed names, the audit log, counts of minutes). From the client of the home
// `serversOf` finds those of all others. With one server the home is all there is, and there is no table.

import {
  type ClickHouseClient,
  type ClickHouseOptions,
  codeOfFault,
  connectClickHouse,
  faultCodes,
} from './client.js';

/** Shards by number: the server, by its place in CLICKHOUSE_URL, that has the shard's rows. */
export type ShardTable = {
  readonly servers: readonly number[];
  /** Shards whose rows are being copied to another server. Nothing is stored in them. */
  readonly moving: readonly number[];
  /** Shards that are being moved, and shards whose old server still has rows. Nothing in them is deleted. */
  readonly unsettled: readonly number[];
};

export type Servers = {
  readonly all: readonly ClickHouseClient[];
  /** Whether there is only the home. */
  readonly isOne: boolean;
  /** The table, as it was last set. Throws ShardTableUnknown. With one server there is none. */
  table(): ShardTable | undefined;
  setTable(table: ShardTable): void;
  /** The place of a shard's server. */
  numberOf(shard: number): number;
  ofShard(shard: number): ClickHouseClient;
  isMoving(shard: number): boolean;
  isUnsettled(shard: number): boolean;
};

/** Nobody has read yet which server has which shard. */
export class ShardTableUnknown extends Error {
  constructor() {
    super('it is not known yet which ClickHouse server has which shard');
  }
}

export class ShardIsMoving extends Error {
  constructor(shard: number) {
    super(`shard ${shard} is being moved to another ClickHouse server`);
  }
}

const known = new WeakMap<ClickHouseClient, Servers>();

/** Makes a client for each server, without waiting for connections. Closing the home, which it returns, closes the others. */
export function connectServers(
  urls: readonly string[],
  database: string,
  tables: Partial<Pick<ClickHouseOptions, 'tables' | 'cluster'>> = {},
): ClickHouseClient {
  const [home, ...others] = urls.map((url) => connectClickHouse({ url, database, ...tables }));
  if (home === undefined) throw new Error('CLICKHOUSE_URL names no server');
  if (others.length === 0) return home;
  known.set(home, createServers([home, ...others]));
  const closeHome = home.close.bind(home);
  home.close = async () => {
    await Promise.all([closeHome(), ...others.map((other) => other.close())]);
  };
  return home;
}

/** All servers of a deployment, by the connection to its home. */
export function serversOf(home: ClickHouseClient): Servers {
  let servers = known.get(home);
  if (servers === undefined) {
    servers = createServers([home]);
    known.set(home, servers);
  }
  return servers;
}

function createServers(all: readonly ClickHouseClient[]): Servers {
  const isOne = all.length === 1;
  let current: ShardTable | undefined;
  const table = () => {
    if (isOne) return undefined;
    if (current === undefined) throw new ShardTableUnknown();
    return current;
  };
  const numberOf = (shard: number) => {
    const number = isOne ? 0 : table()?.servers[shard];
    if (number === undefined) throw new Error(`there is no shard ${shard}`);
    return number;
  };
  return {
    all,
    isOne,
    table,
    setTable: (next) => {
      current = next;
    },
    numberOf,
    ofShard: (shard) => all[numberOf(shard)] as ClickHouseClient,
    isMoving: (shard) => table()?.moving.includes(shard) ?? false,
    isUnsettled: (shard) => table()?.unsettled.includes(shard) ?? false,
  };
}

/** A server that takes longer counts as away; whatever needs it waits and checks again. */
const answerMsMax = 5_000;

/**
 * Indexes of the servers that answer now and answered at the last check. A single server is not checked: its caller notices
 * the failure. `mayBeEmpty`: a server without the database counts as well.
 */
export async function serversThere(
  { all, isOne }: Servers,
  mayBeEmpty = false,
): Promise<ReadonlySet<number>> {
  if (isOne) return new Set([0]);
  const seen = await Promise.all(all.map(checkOrRemember));
  return new Set(
    seen.flatMap((state, number) => (state === 'there' || (mayBeEmpty && state === 'empty') ? [number] : [])),
  );
}

export type ServersWatch = {
  /** Indexes of the servers that did not answer the last time. */
  readonly away: () => readonly number[];
  readonly close: () => void;
};

const watchEveryMs = 2_000;

/** Checks every two seconds which of several servers answer. A single server is not watched. */
export function watchServers(home: ClickHouseClient): ServersWatch {
  const servers = serversOf(home);
  if (servers.isOne) return { away: () => [], close: () => undefined };
  let away: readonly number[] = [];
  let isChecking = false;
  const check = async () => {
    if (isChecking) return;
    isChecking = true;
    const there = await serversThere(servers);
    away = [...servers.all.keys()].filter((number) => !there.has(number));
    isChecking = false;
  };
  const timer = setInterval(() => void check(), watchEveryMs);
  return { away: () => away, close: () => clearInterval(timer) };
}

/** `empty`: it answers, and lacks the database. */
type State = 'there' | 'empty' | 'away';
/** What the last check of a server showed, and when; and the check that is running. */
type Seen = { state: State; checkedAtMs: number; check: Promise<State> | undefined };
const seenOf = new WeakMap<ClickHouseClient, Seen>();

/** A server that was away is checked again this long after the last check. Nobody waits for that. */
const awayCheckedEveryMs = 1_000;
/** An older check says nothing: the caller waits for a new one. */
const awayKnownMs = 2 * answerMsMax;

/**
 * A hanging server would delay every step of a deletion round by its timeout. So a server that was away at the last check counts
 * as away, and is checked again in the background.
 */
async function checkOrRemember(client: ClickHouseClient): Promise<State> {
  const seen = seenOf.get(client) ?? {
    state: 'there',
    checkedAtMs: Number.NEGATIVE_INFINITY,
    check: undefined,
  };
  seenOf.set(client, seen);
  const agoMs = performance.now() - seen.checkedAtMs;
  const isKnownAway = seen.state === 'away' && agoMs < awayKnownMs;
  if (isKnownAway && agoMs < awayCheckedEveryMs) return 'away';
  seen.check ??= ask(client).then((state) => {
    Object.assign(seen, { state, checkedAtMs: performance.now(), check: undefined });
    return state;
  });
  return isKnownAway ? 'away' : seen.check;
}

/** By a statement, not by /ping: the latter says nothing of passwords. */
async function ask(client: ClickHouseClient): Promise<State> {
  try {
    const result = await client.query({
      query: 'SELECT 1',
      format: 'JSONEachRow',
      abort_signal: AbortSignal.timeout(answerMsMax),
    });
    await result.json();
    return 'there';
  } catch (error) {
    return codeOfFault(error) === faultCodes.unknownDatabase ? 'empty' : 'away';
  }
}
