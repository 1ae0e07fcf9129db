// What was seen during a round of users who had to be gone by then: from queries once they are hidden, from the disk once their
// request is complete.

import type { AnyWorld } from './fault.js';
import { readStored, type Sight } from './rows.js';

/** Looks at the account's environments. What a store lost, or had again, meanwhile says nothing. */
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

/** Changes with each loss that begins or ends. */
export function lossesOf({ emptied, setBack }: AnyWorld): string {
  return [...emptied, ...setBack].map(({ toMs }) => toMs).join();
}
