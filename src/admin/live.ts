// Watching the records that arrive in an environment.

import { AdministrationError } from '../contract/errors.js';
import { live } from '../contract/limits.js';
import { type LivePage, readArrivedSince, readPlace, signPlace } from '../insights/traffic/live.js';
import type { AdminContext } from '../operations/context.js';
import { readTime } from '../registry/registry.js';
import { clickhouseOf } from '../registry/shard-servers.js';
import { environmentOf, isTimeout, TakesTooLong } from './users.js';

/** Begins to watch the records that arrive from now on. */
export async function beginLive(context: AdminContext, appId: string) {
  const { secret } = await environmentOf(context, appId);
  // Segments are numbered by Redis's clock.
  const segment = `${(await readTime(context.redis)) - live.beforeMs}000`;
  return {
    app_id: appId,
    place: signPlace(secret, appId, segment, Date.now() + live.watchMsMax),
  };
}

/** The records that have arrived since a place. */
export async function readLive(context: AdminContext, appId: string, place: string): Promise<LivePage> {
  const { secret } = await environmentOf(context, appId);
  const known = readPlace(secret, appId, place, Date.now());
  if (known === undefined) throw new AdministrationError('this place has expired: begin to watch again');
  const client = clickhouseOf(context.clickhouse, appId);
  const { events, arrived, segment } = await readArrivedSince(client, appId, known.segment).catch(
    (error: unknown) => {
      // The next request begins at the same place, so no record is missed.
      throw isTimeout(error) ? new TakesTooLong('too much arrives to be shown now') : error;
    },
  );
  return { events, arrived, place: signPlace(secret, appId, segment, known.untilMs) };
}
