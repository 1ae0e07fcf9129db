// Whether each URL of several leads to the server of its place, while a process lives: the order of CLICKHOUSE_URL may be
// another one than before, and an address may come to lead to another server. A statement is sent only if its server was
// compared in the last seconds, and no connection to it has failed since. Otherwise the server is compared first.

import { type ClickHouseClient, codeOfFault, faultCodes, guardStatements } from './client.js';
import { misfitOf, readServerNumber, type ServerNumber } from './server-numbers.js';

/** A URL leads to another server than the one of its place. */
export class WrongServer extends Error {
  readonly code = 'wrong_server';
}

export type RightServers = {
  /**
   * Asks the server of a place who it is. Settles with `empty` if it lacks the database. Rejects with WrongServer, or with the
   * fault of the connection.
   */
  compare(place: number, signal?: AbortSignal): Promise<'right' | 'empty'>;
  /** What is wrong with the servers that were not right at their last check. */
  misfits(): readonly string[];
};

const comparedMsMax = 10_000;
const homeMsMax = 5_000;

type Compared = {
  /** As it is without the guard. */
  readonly query: ClickHouseClient['query'];
  atMs: number;
  noted: ServerNumber | undefined;
  misfit: string | undefined;
  running: Promise<unknown> | undefined;
};

/** Guards the connections to all servers, the home first, as long as `isOn`. */
export function guardServers(all: readonly ClickHouseClient[], isOn: () => boolean): RightServers {
  const never = Number.NEGATIVE_INFINITY;
  const servers = all.map(
    (client): Compared => ({
      query: client.query.bind(client),
      atMs: never,
      noted: undefined,
      misfit: undefined,
      running: undefined,
    }),
  );
  const [home] = servers;

  async function compare(place: number, signal?: AbortSignal): Promise<'right' | 'empty'> {
    const server = servers[place] as Compared;
    const askedAtMs = performance.now();
    let noted: ServerNumber | undefined;
    try {
      noted = await readServerNumber(server, signal);
    } catch (error) {
      server.atMs = never;
      if (codeOfFault(error) !== faultCodes.unknownDatabase) throw error;
      server.misfit = undefined;
      return 'empty';
    }
    server.noted = noted;
    if (server === home) return settle(server, misfitOf(place, noted, undefined), askedAtMs);
    const judge = () => misfitOf(place, noted, home?.noted?.deployment);
    // The home may have been created again since it was compared.
    if (judge() !== undefined && noted?.deployment !== home?.noted?.deployment)
      await compare(0, AbortSignal.timeout(homeMsMax)).catch(() => undefined);
    return settle(server, judge(), askedAtMs);
  }

  function settle(server: Compared, misfit: string | undefined, askedAtMs: number): 'right' {
    server.misfit = misfit;
    server.atMs = misfit === undefined ? askedAtMs : never;
    if (misfit !== undefined) throw new WrongServer(misfit);
    // While the home was away the others could not be compared with it.
    if (server === home)
      for (const other of servers)
        if (other.noted?.deployment !== server.noted?.deployment) other.atMs = never;
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
      server.atMs = never;
    });
  }
  return {
    compare,
    misfits: () => servers.flatMap(({ misfit }) => misfit ?? []),
  };
}
