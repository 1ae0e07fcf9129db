// Why rows cannot be deleted now, by ClickHouse server. A deletion waits for the servers that its account needs, and for no others.

import {
  type ClickHouseClient,
  codeOfFault,
  faultCodes,
  isConnectionFault,
} from '../../clickhouse/client.js';
import { assertRoom, NoRoom } from '../../clickhouse/definitions.js';
import { MutationFailed, MutationStoodStill } from '../../clickhouse/mutate.js';
import { reachableServers, serversOf } from '../../clickhouse/servers.js';
import type { DeletionState } from '../../contract/deletion-states.js';
import { waits } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { isTurnTaken } from '../../redis/lease.js';
import { deletionRounds } from '../../tuning.js';

/** Three times as long as it takes to notice that a mutation stands still. Each try holds up the deletions of all servers. */
const leftOutMs = 3 * waits.mutationStandstillMsMax;

type Stores = { readonly redis: Redis; readonly clickhouse: ClickHouseClient };

/** The servers on which no rows can be deleted now, by their indexes. */
export async function readObstacles({
  redis,
  clickhouse,
}: Stores): Promise<ReadonlyMap<number, DeletionState>> {
  const servers = serversOf(clickhouse);
  const reachable = await reachableServers(servers);
  const obstacleOn = async (client: ClickHouseClient, number: number) => {
    if (!reachable.has(number)) return 'clickhouse_unavailable';
    if (await isTurnTaken(redis, registryKeys.stoodStill(number), leftOutMs)) return 'mutation_failed';
    // On a full disk a round cannot rewrite anything, and would only add to the work that ClickHouse retries there.
    const room = assertRoom(client, 'a round of deletions', deletionRounds.roomBytesMin);
    const state = await room.then(() => undefined, stateOfFault);
    // A server that refuses this look also refuses the round, which logs why.
    return state === 'failed' ? undefined : state;
  };
  const found = await Promise.all(servers.all.map(obstacleOn));
  return new Map(found.flatMap((state, number) => (state === undefined ? [] : [[number, state]])));
}

/** The connections to the servers on which rows can be deleted now. */
export async function unobstructedClients(stores: Stores): Promise<ClickHouseClient[]> {
  const obstacles = await readObstacles(stores);
  return serversOf(stores.clickhouse).all.filter((_, number) => !obstacles.has(number));
}

/** The server where a mutation stood still, if others can do without it: the primary has tables of all accounts. */
function stuckServer({ clickhouse }: Pick<Stores, 'clickhouse'>, error: unknown): number | undefined {
  if (!(error instanceof MutationStoodStill)) return undefined;
  const number = serversOf(clickhouse).all.indexOf(error.client);
  return number > 0 ? number : undefined;
}

/** Has the rounds of all workers leave out a server for a while, if this error shows that a mutation stood still there. */
export async function leaveOutStuck(stores: Stores, error: unknown): Promise<void> {
  const number = stuckServer(stores, error);
  if (number !== undefined) await stores.redis.set(registryKeys.stoodStill(number), '', 'PX', leftOutMs);
}

/** Whether ClickHouse has answered that it refuses the work, so that it may do less of it. */
export function isRefusal(stores: Pick<Stores, 'clickhouse'>, error: unknown): boolean {
  if (stuckServer(stores, error) !== undefined) return false;
  return error instanceof MutationFailed || codeOfFault(error) !== 0;
}

export function stateOfFault(error: unknown): DeletionState {
  if (error instanceof NoRoom || codeOfFault(error) === faultCodes.notEnoughSpace) return 'no_room';
  if (error instanceof MutationFailed) return 'mutation_failed';
  return isConnectionFault(error) ? 'clickhouse_unavailable' : 'failed';
}
