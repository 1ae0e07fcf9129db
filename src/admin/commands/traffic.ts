// Commands: incoming records, which of them were refused or mended, and whether all is well.

import { administration, lengths } from '../../contract/limits.js';
import { everyone, integrators, operatorsOnly } from '../../contract/roles.js';
import { oneOf, optional, text } from '../../contract/typebox.js';
import { readEnvironmentCounts } from '../../insights/data-quality/environment-counts.js';
import { listEventNames, listEventProperties } from '../../insights/data-quality/event-names.js';
import { listRejected } from '../../insights/data-quality/rejected-records.js';
import { readAnyEvent } from '../../insights/traffic/first-event.js';
import { examplesFor } from '../../libraries/examples.js';
import { environmentNamed, readLoadedRegistry, readRegistry } from '../../registry/registry.js';
import { clickhouseOf } from '../../registry/shard-servers.js';
import { does, shows, wholeNumber } from '../command.js';
import { beginLive, readLive } from '../live.js';
import { readDeploymentParts, readOverview, readRejectionsOf, readTrafficOf } from '../overview.js';
import { environmentOf, inTime } from '../users.js';

const span = optional(oneOf(['hour', 'week'], 'hour, by minutes, or week, by hours.'));
const days = optional(wholeNumber(1, administration.daysMax, { description: 'How far back. Default: 7.' }));
const remedy = 'choose a shorter period';

export const trafficCommands = {
  showOverview: shows({
    summary: 'What is not well, if anything; how soon records can be queried; pending deletions',
    may: everyone,
    http: 'GET /accounts/:account_id/overview',
    takesTurns: true,
    run: (context, { account_id }) => readOverview(context, account_id),
  }),
  showTraffic: shows({
    summary:
      'Records accepted, repeated, limited and rejected, by minute or hour; the last minute is a few seconds late',
    may: everyone,
    http: 'GET /accounts/:account_id/traffic',
    given: {
      app_id: optional(text('Only those of this environment.')),
      span,
    },
    takesTurns: true,
    run: (context, { account_id, app_id: appId, span }) =>
      readTrafficOf(context, account_id, { appId, span }),
  }),
  showDeployment: shows({
    summary: 'Shards with their backlog, processes, Redis and ClickHouse',
    may: operatorsOnly,
    http: 'GET /deployment',
    run: (context) => readDeploymentParts(context),
  }),

  showStats: shows({
    summary: 'What was mended, ignored and refused',
    may: everyone,
    http: 'GET /environments/:app_id/stats',
    cli: 'environments stats APP_ID   what it mended, ignored and refused, and repeats that say something else',
    run: async (context, { app_id }) => {
      await environmentOf(context, app_id);
      const { deployment } = await readLoadedRegistry(context.redis);
      return { app_id, ...(await readEnvironmentCounts(context.redis, deployment.shards, app_id)) };
    },
  }),
  listRejected: shows({
    summary: 'The last records that were refused, without values',
    may: everyone,
    http: 'GET /environments/:app_id/rejected',
    cli: 'rejected list APP_ID   the last records that were refused: why and which field, never values',
    run: async ({ redis }, { app_id }) => {
      environmentNamed(await readRegistry(redis), app_id);
      return listRejected(redis, app_id);
    },
  }),
  showRejections: shows({
    summary: 'Rejected records by code and field, by minute or hour; the last minute is a few seconds late',
    may: everyone,
    http: 'GET /environments/:app_id/rejections',
    given: { span },
    takesTurns: true,
    run: (context, { app_id, span }) => readRejectionsOf(context, app_id, span),
  }),
  listEventNames: shows({
    summary: 'The events that were accepted lately: how often, and when the first and the last one came',
    may: everyone,
    http: 'GET /environments/:app_id/event-names',
    given: { days },
    takesTurns: true,
    run: async (context, { app_id, days = 7 }) => {
      await environmentOf(context, app_id);
      return inTime(listEventNames(clickhouseOf(context.clickhouse, app_id), app_id, days), remedy);
    },
  }),
  listEventProperties: shows({
    summary: 'The properties of an event and the types of their values, from a sample; no values',
    may: everyone,
    // A name of 1,000 non-ASCII characters would be too long for a URL.
    http: {
      'GET /environments/:app_id/event-properties': 'listEventProperties',
      'POST /environments/:app_id/event-properties': 'readEventProperties',
    },
    given: {
      event: text('The name of the event.', { maxLength: lengths.eventMax }),
      days,
    },
    takesTurns: true,
    run: async (context, { app_id, event, days = 7 }) => {
      await environmentOf(context, app_id);
      const clickhouse = clickhouseOf(context.clickhouse, app_id);
      return inTime(listEventProperties(clickhouse, app_id, event, days), remedy);
    },
  }),
  showFirstEvent: shows({
    summary: 'An event of the environment, once one is stored, and example programs that send one',
    may: everyone,
    http: 'GET /environments/:app_id/first-event',
    cli: 'environments first-event APP_ID   whether an event is stored, and programs that send one',
    takesTurns: true,
    run: async (context, { app_id }) => {
      const environment = environmentNamed(await readLoadedRegistry(context.redis), app_id);
      const event = await readAnyEvent(clickhouseOf(context.clickhouse, app_id), app_id);
      const needsWriteKey = environment.write_key === 'required';
      const examples = examplesFor(app_id, context.config.publicBaseUrl, needsWriteKey);
      return { app_id, event: event ?? null, examples };
    },
  }),

  watchLive: does('watched events arrive', {
    summary: 'Begin to watch what arrives: the answer has the place from which to ask, valid for an hour',
    may: integrators,
    http: 'POST /environments/:app_id/live',
    run: (context, { app_id }) => beginLive(context, app_id),
  }),
  showLive: shows({
    summary: 'The latest 20 events since a place, and the next place',
    may: integrators,
    http: 'GET /environments/:app_id/live',
    given: { place: text('The place in the previous answer.') },
    takesTurns: true,
    run: (context, { app_id, place }) => readLive(context, app_id, place),
  }),
};
