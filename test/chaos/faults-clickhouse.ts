// Faults of ClickHouse as its callers see them: errors by code, slowness, lost answers to executed statements, late inserts, tokens that
// are logged without their rows, and refused rows.

import { targetTable } from '../../src/privacy/deletion/user-tables.js';
import { type Choice, inserts, segmentInserts } from '../harness/clickhouse-gate.js';
import { until } from '../harness/wait.js';
import { ofOwnUser, poisonEvent } from './clients.js';
import { type Fault, hold, type World } from './fault.js';

const everything: Choice = () => true;
const mutations: Choice = ({ sql }) => /^(?:ALTER TABLE|DELETE FROM) /.test(sql);
/** Chooses the mutations of users' data, but not of the table of deletion targets. */
export const mutationsOfRounds: Choice = (statement) =>
  mutations(statement) && !statement.sql.includes(targetTable);
export const tooManyQueries = 202;
/** Transient errors: too many queries, timeout, network, memory, too many parts, a read-only table. */
const passingCodes = [tooManyQueries, 159, 210, 241, 242, 252];

/** A fault at the gate, which passes everything on afterwards. */
function atGate(
  name: string,
  act: (world: World, ms: (min: number, max: number) => number) => Promise<boolean>,
): Fault {
  return {
    name,
    touches: ['gate'],
    run: async (world, random) => {
      try {
        return await act(world, random.int);
      } finally {
        world.gate.pass();
      }
    },
  };
}

/** Settles with whether the condition held in time. */
async function within(condition: () => boolean, deadlineMs = 5_000): Promise<boolean> {
  return until(condition, { deadlineMs, what: 'a statement arrives' }).catch(() => false);
}

export const clickHouseFaults: readonly Fault[] = [
  ...passingCodes.map((code) =>
    atGate(`clickhouse answers ${code}`, async ({ gate }, ms) => {
      gate.refuse(ms(0, 1) === 0 ? inserts : everything, code);
      const arrived = await within(() => gate.faked.length > 0);
      await hold(ms(100, 1_200));
      return arrived;
    }),
  ),
  atGate('clickhouse slow', async ({ gate }, ms) => {
    let seen = 0;
    gate.delay((statement) => everything(statement) && ++seen > 0, ms(50, 700));
    await hold(ms(800, 2_000));
    return seen > 0;
  }),
  atGate('answers of inserts lost', async ({ gate }, ms) => {
    gate.loseAnswers(inserts);
    const arrived = await within(() => gate.lost.length > 0);
    await hold(ms(0, 1_000));
    return arrived;
  }),
  atGate('answers of mutations lost', async ({ gate }) => {
    gate.loseAnswers(mutations);
    return within(() => gate.lost.length > 0, 9_000);
  }),
  atGate('any answers lost', async ({ gate }, ms) => {
    gate.loseAnswers(everything);
    const arrived = await within(() => gate.lost.length > 0);
    await hold(ms(0, 500));
    return arrived;
  }),
  /** The first insert arrives long after others have stored its segment. */
  atGate('late insert', async ({ gate }, ms) => {
    let left = 1;
    gate.hold((statement) => inserts(statement) && left-- > 0);
    const arrived = await within(() => gate.held.length > 0);
    await hold(ms(1_500, 3_000));
    return arrived;
  }),
  atGate('tokens burnt', async ({ gate }, ms) => {
    let left = ms(1, 3);
    gate.pretend((statement) => segmentInserts(statement) && left-- > 0);
    return within(() => gate.faked.length > 0);
  }),
  atGate('rows refused', async ({ gate, producer, sluice }, ms) => {
    const before = gate.alwaysRefused;
    for (let left = ms(1, 4); left > 0; left -= 1) {
      const baseUrl = sluice.api[ms(0, 1)]?.baseUrl ?? sluice.baseUrl;
      await producer.sendTo('bulk', baseUrl, [
        ofOwnUser(producer),
        poisonEvent(producer),
        ofOwnUser(producer),
      ]);
    }
    const arrived = await within(() => gate.alwaysRefused > before);
    await hold(ms(300, 1_000));
    return arrived;
  }),
];
