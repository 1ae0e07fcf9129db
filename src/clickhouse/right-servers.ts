// Checks, while a process runs, that each of several URLs leads to the server that belongs at its index: the order of CLICKHOUSE_URL may
// have changed, or an address may lead to another server now. Each new connection is checked before its first statement, and a server
// again before a statement if that was not done in the last seconds. The primary server is also compared with Redis, and the others with
// the primary one, so they cannot all belong to another deployment.

import type { Answering } from './answers.js';
import { type ClickHouseClient, codeOfFault, faultCodes, guardStatements } from './client.js';
import {
  misconfigurationOf,
  notOfRedis,
  readEpoch,
  readServerNumber,
  type ServerNumber,
} from './server-numbers.js';

/** A URL leads to another server than the one that belongs at its index. */
export class WrongServer extends Error {
  readonly code = 'wrong_server';
}

const comparedMsMax = 10_000;
const primaryMsMax = 5_000;
/** How long a statement waits for the check of its server. A busy server may take seconds. */
const admissionMsMax = 15_000;

type Compared = {
  /** The client's `exec` without the guard. */
  readonly exec: ClickHouseClient['exec'];
  /** When it was last found to be the right one. */
  atMs: number;
  noted: ServerNumber | undefined;
  misconfiguration: string | undefined;
  running: Promise<unknown> | undefined;
};

/** Guards the connections to all servers, the primary one first, while `isOn`. `epochInRedis`: the deployment's epoch, if known. */
export function guardServers(
  all: readonly ClickHouseClient[],
  isOn: () => boolean,
  epochInRedis: () => string | undefined,
  waitMsMax = admissionMsMax,
) {
  const never = Number.NEGATIVE_INFINITY;
  const servers = all.map(
    (client): Compared => ({
      exec: client.exec.bind(client),
      atMs: never,
      noted: undefined,
      misconfiguration: undefined,
      running: undefined,
    }),
  );
  const [primary] = servers;

  /** The deployment that the primary server's URL led to, if it was not Redis's. */
  let foreign: string | undefined;

  /**
   * Asks the server at an index for its number. Settles with `empty` if it lacks the database. Rejects with WrongServer, with the fault
   * of the connection, or when the signal is aborted, by default after 15 s. `over`: a new connection to it.
   */
  async function compare(
    index: number,
    signal = AbortSignal.timeout(waitMsMax),
    over?: Answering,
  ): Promise<'right' | 'empty'> {
    const server = servers[index] as Compared;
    const askedAtMs = performance.now();
    let noted: ServerNumber | undefined;
    let epoch: string | undefined;
    try {
      noted = await readServerNumber(over ?? server, signal);
      // The client does not look at a signal that was aborted before a statement.
      signal.throwIfAborted();
      if (server === primary && noted !== undefined) epoch = await readEpoch(over ?? server, signal);
    } catch (error) {
      server.atMs = never;
      if (codeOfFault(error) !== faultCodes.unknownDatabase) throw error;
      server.misconfiguration = undefined;
      return 'empty';
    }
    if (server === primary) {
      const inRedis = epochInRedis();
      const mismatch = epoch && inRedis && epoch !== inRedis ? notOfRedis(index) : undefined;
      foreign = mismatch === undefined ? undefined : noted?.deployment;
      if (mismatch === undefined) server.noted = noted;
      return settle(server, mismatch ?? misconfigurationOf(index, noted, undefined), askedAtMs);
    }
    server.noted = noted;
    const judge = () => {
      const isForeign = foreign !== undefined && noted?.deployment === foreign;
      return isForeign ? notOfRedis(index) : misconfigurationOf(index, noted, primary?.noted?.deployment);
    };
    // The primary server may have been created again since it was checked.
    if (judge() !== undefined && noted?.deployment !== primary?.noted?.deployment)
      await compare(0, AbortSignal.any([signal, AbortSignal.timeout(primaryMsMax)])).catch(() => undefined);
    return settle(server, judge(), askedAtMs);
  }

  function settle(server: Compared, misconfiguration: string | undefined, askedAtMs: number): 'right' {
    server.misconfiguration = misconfiguration;
    server.atMs = misconfiguration === undefined ? askedAtMs : never;
    // While the primary server was unreachable, the others could not be compared with it.
    if (server === primary)
      for (const other of servers)
        if (other.noted?.deployment !== server.noted?.deployment || other.noted?.deployment === foreign)
          other.atMs = never;
    if (misconfiguration !== undefined) throw new WrongServer(misconfiguration);
    return 'right';
  }

  for (const [index, client] of all.entries()) {
    const server = servers[index] as Compared;
    const admit = () => {
      if (!isOn() || performance.now() - server.atMs < comparedMsMax) return undefined;
      server.running ??= compare(index).finally(() => {
        server.running = undefined;
      });
      return server.running.then(() => undefined);
    };
    guardStatements(client, admit, (over) => (isOn() ? compare(index, undefined, over()) : undefined));
  }
  return {
    compare,
    /** What was wrong with servers at their last check. */
    misconfigurations: () => servers.flatMap(({ misconfiguration }) => misconfiguration ?? []),
  };
}
