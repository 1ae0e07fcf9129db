// Why rows cannot be deleted now, by ClickHouse server. A deletion waits for the servers that its account needs, and for no others.

import {
  type ClickHouseClient,
  codeOfFault,
  faultCodes,
  isConnectionFault,
} from '../../clickhouse/client.js';
import { assertRoom, NoRoom } from '../../clickhouse/definitions.js';
import { MutationFailed, stoodStillLately } from '../../clickhouse/mutate.js';
import { reachableServers, serversOf } from '../../clickhouse/servers.js';
import type { DeletionState } from '../../contract/deletion-states.js';
import { deletionRounds } from '../../tuning.js';

/** The servers on which no rows can be deleted now, by their indexes. */
export async function readObstacles(primary: ClickHouseClient): Promise<ReadonlyMap<number, DeletionState>> {
  const servers = serversOf(primary);
  const reachable = await reachableServers(servers);
  const obstacleOn = async (client: ClickHouseClient, number: number) => {
    if (!reachable.has(number)) return 'clickhouse_unavailable';
    // Each try would hold up all other servers' deletions. Without the primary one there are none.
    if (client !== primary && stoodStillLately(client)) return 'mutation_failed';
    // On a full disk a round cannot rewrite anything, and would only add to the work that ClickHouse retries there.
    const room = assertRoom(client, 'a round of deletions', deletionRounds.roomBytesMin);
    return room.then(() => undefined, stateOfFault);
  };
  const found = await Promise.all(servers.all.map(obstacleOn));
  return new Map(found.flatMap((state, number) => (state === undefined ? [] : [[number, state]])));
}

/** The connections to the servers on which rows can be deleted now. */
export async function unobstructedClients(primary: ClickHouseClient): Promise<ClickHouseClient[]> {
  const obstacles = await readObstacles(primary);
  return serversOf(primary).all.filter((_, number) => !obstacles.has(number));
}

export function stateOfFault(error: unknown): DeletionState {
  if (error instanceof NoRoom || codeOfFault(error) === faultCodes.notEnoughSpace) return 'no_room';
  if (error instanceof MutationFailed) return 'mutation_failed';
  return isConnectionFault(error) ? 'clickhouse_unavailable' : 'failed';
}
