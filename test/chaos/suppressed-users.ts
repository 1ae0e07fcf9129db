// Users who are seen and identified, and then suppressed. Afterwards records about them are sent under every name and to every endpoint
// that stores, which imports use too. No table may hold what was sent after the answer.

import type { TestAccount } from '../harness/accounts.js';
import { askForToken } from '../harness/deletion.js';
import type { Endpoint, SentEvent } from '../harness/endpoints.js';
import type { Producer } from '../harness/load.js';
import { submitSuppression } from '../harness/suppression.js';
import { again } from './deletions.js';
import { hold } from './fault.js';
import { createOwnRecords } from './own-records.js';
import type { Random } from './random.js';

export type SuppressedUsersOptions = {
  readonly account: TestAccount;
  /** Sends what comes before the suppressions. */
  readonly producer: Producer;
  /** Sends what must be kept out, to the same environment. */
  readonly keptOut: Producer;
  readonly targets: readonly string[];
  readonly random: Random;
  /** Pause between two users. */
  readonly everyMs: number;
};

type User = { readonly identity: string } | { readonly user_id: string };

/** A user whose suppression was submitted, with both names. */
export type SuppressedUser = {
  readonly user_id: string;
  readonly identity: string;
  readonly fromMs: number;
};

export function isAbout({ user_id, identity }: SentEvent, user: SuppressedUser): boolean {
  return user_id === user.user_id || identity === user.identity;
}

export type SuppressedUsers = {
  readonly suppressed: readonly SuppressedUser[];
  /** Starts no more users, unless none is done yet; settles when the last one is done. */
  stop(): Promise<void>;
};

/** Part of the markers of records under the name that the submission did not contain. */
export const mergedMark = 'merged';

/** High enough that no other client sends these user_ids to this environment. */
const firstUserId = 700_000_000;
const firstLateUserId = 750_000_000;
const attemptsMax = 20;
const pauseMs = 200;

export function startSuppressedUsers(options: SuppressedUsersOptions): SuppressedUsers {
  const { account, producer, keptOut, targets, random, everyMs } = options;
  let stopped = false;
  let users = 0;
  let records = 0;
  const suppressed: SuppressedUser[] = [];
  const done: (readonly [User, User])[] = [];
  const { see, identify } = createOwnRecords(producer, targets, random, 'quiet', () => true);

  async function token(): Promise<string> {
    const reply = await askForToken({ baseUrl: random.pick(targets) }, account);
    return reply.status === 200 ? (JSON.parse(reply.text) as { access_token: string }).access_token : '';
  }

  /** Repeats a submission until it is answered; repeating one is allowed. */
  async function suppress(named: object): Promise<void> {
    for (let left = attemptsMax; left > 0; left -= 1) {
      const body = { users: [named], suppress: true };
      const reply = await submitSuppression(random.pick(targets), await token(), body).catch(() => undefined);
      if (reply?.status === 200) return;
      await hold(pauseMs);
    }
    throw new Error('a suppression was not answered');
  }

  /** Sends records of a user to every endpoint. `isNamed`: whether this name, not the one merged with it, was suppressed. */
  async function sendAbout(user: User, isNamed: boolean): Promise<void> {
    const send = async (endpoint: Endpoint, record: Omit<SentEvent, 'properties'>) => {
      records += 1;
      const marker = `${keptOut.mark}-${isNamed ? 'named' : mergedMark}-${records}`;
      await keptOut.sendTo(endpoint, random.pick(targets), [{ ...record, properties: { marker } }]);
    };
    const event = { event: 'Kept out', ...user };
    await send('track', event);
    await send('bulk', event);
    await send('collect', event);
    // These two name users by their identity only.
    if ('identity' in user) {
      await send('user_properties', { ...event, kind: 'user_properties' });
      await send('segment', event);
    }
    await sendIdentification(user, isNamed);
  }

  /** Identifies the user as another identity, or another user_id as the user. The two names are the marker of the row. */
  async function sendIdentification(user: User, isNamed: boolean): Promise<void> {
    if ('identity' in user && !isNamed) return;
    records += 1;
    const { user_id, identity } = {
      user_id: String(firstLateUserId + records),
      identity: `${keptOut.mark}-${isNamed ? 'named' : mergedMark}-${records}`,
      ...user,
    };
    const marker = `${user_id} is ${identity}`;
    const record = { kind: 'identify', event: '', user_id, identity, properties: { marker } } as const;
    await keptOut.sendTo('identify', random.pick(targets), [record]);
  }

  async function suppressUser(): Promise<void> {
    users += 1;
    const user_id = String(firstUserId + users);
    const identity = `${producer.mark}-quiet-${users}@example.com`;
    await see({ user_id });
    await identify(user_id, identity);
    const both: [User, User] = [{ identity }, { user_id }];
    const [named, other] = random.shuffle(both) as [User, User];
    suppressed.push({ user_id, identity, fromMs: performance.now() });
    await suppress(named);
    done.push([named, other]);
    // Redis may have been emptied since the suppression of an earlier user.
    for (const [first, second] of [[named, other] as const, random.pick(done)]) {
      await sendAbout(first, true);
      await sendAbout(second, false);
    }
  }

  const running = again(() => !stopped, everyMs, suppressUser);
  return {
    suppressed,
    stop: async () => {
      stopped = true;
      await running;
      // The faults may have left no time for any user.
      if (done.length === 0) await suppressUser().catch(() => undefined);
    },
  };
}
