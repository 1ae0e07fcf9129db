// Looks during a round for users who must be gone: from queries once they are hidden, and from the disk once their request is complete.

import type { AnyWorld } from './fault.js';
import { readStored, type Sight } from './rows.js';

/** Reads the account's environments. Notes nothing if a loss of a store began or ended meanwhile. */
export async function look(
  world: AnyWorld,
  kind: Sight['kind'],
  requestIds: ReadonlySet<string>,
  losses = lossesOf(world),
): Promise<void> {
  const seen: Sight[] = [];
  for (const appId of world.appIds.filter((id) => world.account.appIds.includes(id))) {
    const rows = await readStored(world.sluice, appId, kind === 'left on the disk');
    seen.push({ kind, appId, rows, requestIds });
  }
  if (losses === lossesOf(world)) world.sights.push(...seen);
}

/** A text that changes whenever a loss begins or ends. */
export function lossesOf({ emptied, setBack }: AnyWorld): string {
  return [...emptied, ...setBack].map(({ toMs }) => toMs).join();
}
