// Commands: whether all accepted records are where the ledger says.

import { everyone, operatorsOnly } from '../../contract/roles.js';
import { optional, text } from '../../contract/typebox.js';
import { readDifferences } from '../../insights/ledger/schedule.js';
import { checkBooks, showDay } from '../../insights/ledger/show.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import { type CommandContext, shows } from '../command.js';
import { environmentOf } from '../users.js';

export const ledgerCommands = {
  showLedgerCheck: shows({
    summary: 'Compares what was accepted in a period with what is stored, refused, deleted or expired',
    may: operatorsOnly,
    http: 'GET /ledger/check',
    cli: 'ledger check [--from TIME] [--to TIME]   whether all records add up, of the last two days by default; exit code 1 if not',
    given: { from: optional(text()), to: optional(text()) },
    run: async (context, { from, to }) => checkBooks(await optionsOf(context), { from, to }),
  }),
  listDifferences: shows({
    summary: 'Environments and minutes whose records do not add up, as found by the automatic check',
    may: operatorsOnly,
    http: 'GET /ledger/differences',
    cli: 'ledger differences   what the check that runs by itself has found',
    run: ({ redis }) => readDifferences(redis),
  }),
  showLedger: shows({
    summary: 'What became of the records that an environment accepted on a day, by minute',
    may: everyone,
    http: 'GET /environments/:app_id/ledger',
    cli: 'ledger show APP_ID --day DAY   what became of the records of a day (YYYY-MM-DD, UTC), by minute',
    given: { day: text('YYYY-MM-DD, in UTC.') },
    takesTurns: true,
    run: async (context, { app_id, day }) => {
      await environmentOf(context, app_id);
      return showDay(await optionsOf(context), app_id, day);
    },
  }),
};

async function optionsOf({ redis, clickhouse }: CommandContext) {
  const { deployment } = await readLoadedRegistry(redis);
  return { redis, clickhouse, shards: deployment.shards, epoch: deployment.epoch };
}
