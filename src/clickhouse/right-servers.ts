// Checks, while a process lives, that each of several URLs leads to the server of its place: the order of CLICKHOUSE_URL may
// have changed, and an address may come to lead to another server. A statement is sent only if its server was
// compared in the last seconds, and no connection to it has failed since. Otherwise the server is compared first. The home is also
// compared with Redis, and the others with the home, so they cannot all belong to another deployment.

import { type ClickHouseClient, codeOfFault, faultCodes, guardStatements } from './client.js';
import {
  foreignOf,
  misconfigurationOf,
  notOfRedis,
  readEpoch,
  readServerNumber,
  type ServerNumber,
} from './server-numbers.js';

/** A URL leads to another server than the one of its place. */
export class WrongServer extends Error {
  readonly code = 'wrong_server';
}

export type RightServers = {
  /**
   * Asks the server of a place who it is, again if a connection to it fails meanwhile. Settles with `empty` if it lacks the
   * database. Rejects with WrongServer, with the fault of the connection, or after the signal or 15 s.
   */
  compare(place: number, signal?: AbortSignal): Promise<'right' | 'empty'>;
  /** What is wrong with the servers that were not right at their last check. */
  misconfigurations(): readonly string[];
};

const comparedMsMax = 10_000;
const homeMsMax = 5_000;
/** How long a statement waits until its server is compared. A server that is busy may take seconds. */
const admissionMsMax = 15_000;

type Compared = {
  /** As it is without the guard. */
  readonly exec: ClickHouseClient['exec'];
  atMs: number;
  /** When a connection to it failed last. */
  faultAtMs: number;
  noted: ServerNumber | undefined;
  misconfiguration: string | undefined;
  running: Promise<unknown> | undefined;
};

/** Guards the connections to all servers, the home first, as long as `isOn`. `epochInRedis` is that of the deployment, if known. */
export function guardServers(
  all: readonly ClickHouseClient[],
  isOn: () => boolean,
  epochInRedis: () => string | undefined,
  waitMsMax = admissionMsMax,
): RightServers {
  const never = Number.NEGATIVE_INFINITY;
  const servers = all.map(
    (client): Compared => ({
      exec: client.exec.bind(client),
      atMs: never,
      faultAtMs: never,
      noted: undefined,
      misconfiguration: undefined,
      running: undefined,
    }),
  );
  const [home] = servers;

  /** The deployment that the home's URL led to, if it was not the one of Redis. */
  let foreign: string | undefined;

  async function compare(place: number, signal = AbortSignal.timeout(waitMsMax)): Promise<'right' | 'empty'> {
    const server = servers[place] as Compared;
    for (;;) {
      const askedAtMs = performance.now();
      const found = await ask(server, place, askedAtMs, signal);
      // What failed meanwhile may have been the way to another server.
      if (server.faultAtMs < askedAtMs) return found;
    }
  }

  async function ask(server: Compared, place: number, askedAtMs: number, signal: AbortSignal) {
    let noted: ServerNumber | undefined;
    let epoch: string | undefined;
    try {
      noted = await readServerNumber(server, signal);
      if (server === home && noted !== undefined) epoch = await readEpoch(server, signal);
    } catch (error) {
      server.atMs = never;
      if (codeOfFault(error) !== faultCodes.unknownDatabase) throw error;
      server.misconfiguration = undefined;
      return 'empty';
    }
    if (server === home) {
      const isForeign = foreignOf(epoch, epochInRedis());
      foreign = isForeign === undefined ? undefined : noted?.deployment;
      if (isForeign === undefined) server.noted = noted;
      return settle(server, isForeign ?? misconfigurationOf(place, noted, undefined), askedAtMs);
    }
    server.noted = noted;
    const judge = () => {
      const isForeign = foreign !== undefined && noted?.deployment === foreign;
      return isForeign ? notOfRedis(place) : misconfigurationOf(place, noted, home?.noted?.deployment);
    };
    // The home may have been created again since it was compared.
    if (judge() !== undefined && noted?.deployment !== home?.noted?.deployment)
      await compare(0, AbortSignal.any([signal, AbortSignal.timeout(homeMsMax)])).catch(() => undefined);
    return settle(server, judge(), askedAtMs);
  }

  function settle(server: Compared, misconfiguration: string | undefined, askedAtMs: number): 'right' {
    server.misconfiguration = misconfiguration;
    server.atMs = misconfiguration === undefined && server.faultAtMs < askedAtMs ? askedAtMs : never;
    // While the home was away the others could not be compared with it.
    if (server === home)
      for (const other of servers)
        if (other.noted?.deployment !== server.noted?.deployment || other.noted?.deployment === foreign)
          other.atMs = never;
    if (misconfiguration !== undefined) throw new WrongServer(misconfiguration);
    return 'right';
  }

  for (const [place, client] of all.entries()) {
    const server = servers[place] as Compared;
    const admit = () => {
      if (!isOn() || performance.now() - server.atMs < comparedMsMax) return undefined;
      server.running ??= compare(place).finally(() => {
        server.running = undefined;
      });
      return server.running.then(() => undefined);
    };
    guardStatements(client, admit, () => {
      server.faultAtMs = performance.now();
      server.atMs = never;
    });
  }
  return {
    compare,
    misconfigurations: () => servers.flatMap(({ misconfiguration }) => misconfiguration ?? []),
  };
}
