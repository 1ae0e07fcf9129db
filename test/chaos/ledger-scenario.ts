// The scenario in which a mutant of the ledger must show: a load of two environments with repeats, a suppressed user and a deletion. Prints
// as JSON whether the ledger balances afterwards.

import { setTimeout as pause } from 'node:timers/promises';
import { storing } from '../../src/contract/limits.js';
import type { CheckedBooks } from '../../src/insights/ledger/show.js';
import { createTestAccount, unlimited } from '../harness/accounts.js';
import { administer, getToken, submitAccepted, untilStored } from '../harness/deletion.js';
import { paths, post } from '../harness/ingestion.js';
import { startSluice } from '../harness/services.js';
import { setSuppressed } from '../harness/suppression.js';
import { until } from '../harness/wait.js';

const requests = 130;
/** Slow enough for some twenty segments even on a fast machine, since most mutants break only one in several. */
const requestEveryMs = 100;
// Segments live as long as in production. The shorter ones of other tests are sealed at the first tick that sees them, never seen open.
const sluice = await startSluice({ env: { SEGMENT_AGE_MS_MAX: String(storing.segmentAgeMs) } });
try {
  const account = await createTestAccount(sluice, 'Books');
  const [main = '', staging = ''] = account.appIds;
  for (const appId of account.appIds) await sluice.admin('environments', 'set', appId, ...unlimited);
  const token = await getToken(sluice, account);
  await setSuppressed(sluice.baseUrl, token, [{ identity: 'shy' }], true);
  const send = async (body: object) => {
    await until(
      async () => (await post(sluice.baseUrl, paths.track, body)).status === 200,
      'a request is accepted',
    );
  };
  const begun = Date.now();
  for (let request = 0; request < requests; request++) {
    await pause(Math.max(0, begun + request * requestEveryMs - Date.now()));
    const events = Array.from({ length: 1_000 }, (_, i) => ({
      event: 'Seen',
      identity: i % 100 === 3 ? 'gone' : i % 100 === 4 ? 'shy' : `user ${i % 100}`,
      properties: { request, i },
    }));
    await send({ app_id: main, events });
    const keyed = { app_id: staging, event: 'Keyed', identity: 'user', idempotency_key: `key ${request}` };
    await Promise.all([send({ ...keyed }), send({ app_id: main, event: 'Single', identity: 'single' })]);
    if (request % 4 === 0) await send(keyed);
  }
  await untilStored(sluice).catch(() => undefined);
  await submitAccepted(sluice, token, [{ identity: 'gone' }]);
  await until(
    async () =>
      Number(
        (
          await sluice.rows(`SELECT count() AS n FROM events WHERE app_id = '${main}' AND identity = 'gone'`)
        )[0]?.n,
      ) === 0,
    {
      deadlineMs: 240_000,
      what: 'the user is gone',
    },
  );
  const sent = Date.now();
  const check = () => administer<CheckedBooks>(sluice, 'GET', '/ledger/check');
  await until(async () => Date.parse((await check()).to) > sent, {
    deadlineMs: 200_000,
    what: 'the minute is over and in the ledger',
    everyMs: 1_000,
  });
  const { balanced, differences } = await check();
  process.stdout.write(`${JSON.stringify({ balanced, differences: differences.slice(0, 3) })}\n`);
} finally {
  await sluice.stop();
}
