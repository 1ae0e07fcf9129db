// Users whose data is exported. Records about them are acknowledged before the request, and one more is sent after its answer, so it is
// known exactly what a deletion at that moment would take. Half of the users are then deleted, and the checker of deletions sees whether
// that takes the same.

import type { TestAccount } from '../harness/accounts.js';
import { askForToken, type User } from '../harness/deletion.js';
import type { Producer } from '../harness/load.js';
import { askForExport, type Line, readExportData } from '../harness/user-export.js';
import { again, type Submission } from './deletions.js';
import { hold } from './fault.js';
import { createOwnRecords } from './own-records.js';
import type { Random } from './random.js';

export type AskedExport = {
  readonly invokedMs: number;
  /** The markers of the users' records, all of which were acknowledged before the request for the export. */
  readonly before: readonly string[];
  /** The markers of the records in the export, once it was read to its end. */
  records?: readonly string[];
  /** The status of the last answer to a request for its data; 0 without one. */
  status: number;
};

export type ExportedUsers = {
  readonly exports: readonly AskedExport[];
  /** Stops asking for exports; settles when nothing more is sent about their users. */
  stop(): Promise<void>;
  /** Call it after `stop`: settles when each export was read or is gone, or after this time. */
  untilRead(msMax: number): Promise<void>;
};

export type ExportedUsersOptions = {
  readonly account: TestAccount;
  readonly producer: Producer;
  readonly targets: readonly string[];
  readonly random: Random;
  readonly submit: (users: readonly User[]) => Promise<Submission>;
  /** Pause between two users. */
  readonly everyMs: number;
};

/** High enough that no other client uses these user_ids. */
const firstUserId = 600_000_000;
const pauseMs = 150;

export function startExportedUsers(options: ExportedUsersOptions): ExportedUsers {
  const { account, producer, targets, random, submit, everyMs } = options;
  const exports: AskedExport[] = [];
  let stopped = false;
  let readUntilMs = Number.POSITIVE_INFINITY;
  let users = 0;
  let sending: Promise<unknown> = Promise.resolve();
  const isWanted = () => !stopped;
  const { see, identify } = createOwnRecords(producer, targets, random, 'shown', isWanted);
  const target = () => ({ baseUrl: random.pick(targets) });

  async function token(): Promise<string> {
    const reply = await askForToken(target(), account);
    return reply.status === 200 ? (JSON.parse(reply.text) as { access_token: string }).access_token : '';
  }

  /** Asks for the data until all of it has arrived, or the answer is that there is no such export. */
  async function read(asked: AskedExport, id: string): Promise<void> {
    while (performance.now() < readUntilMs) {
      const reply = await token()
        .then((bearer) => readExportData(target(), bearer, id))
        .catch(() => undefined);
      asked.status = reply?.status ?? 0;
      if (reply?.status === 404) return;
      asked.records = reply?.status === 200 ? markersOf(reply.text) : undefined;
      if (asked.records !== undefined) return;
      await hold(pauseMs);
    }
  }

  /** Requests an export of a new user; settles with the export and the user's names, or undefined if it was refused. */
  async function ask() {
    users += 1;
    const user_id = String(firstUserId + users);
    const identity = `${producer.mark}-shown-${users}@example.com`;
    const named: readonly User[] = [{ user_id: Number(user_id) }, { identity }];
    const before = [await see({ user_id }), await identify(user_id, identity), await see({ identity })];
    const invokedMs = performance.now();
    const reply = await askForExport(target(), await token(), [random.pick(named)]);
    if (reply.status !== 201) return undefined;
    const { user_export_id: id } = JSON.parse(reply.text) as { user_export_id: string };
    const asked: AskedExport = { invokedMs, before, status: 0 };
    exports.push(asked);
    // This record must not be in the export, whether or not it is acknowledged.
    await see({ identity }).catch(() => undefined);
    return { asked, id, named };
  }

  async function exportUser(): Promise<void> {
    const asking = ask();
    sending = asking.catch(() => undefined);
    const shown = await asking;
    if (shown === undefined) return;
    await read(shown.asked, shown.id);
    if (!isWanted() || random.int(0, 1) === 0) return;
    const submitting = submit([random.pick(shown.named)]);
    sending = submitting.catch(() => undefined);
    await submitting;
  }

  const running = again(isWanted, everyMs, exportUser);
  return {
    exports,
    stop: async () => {
      stopped = true;
      await sending;
    },
    untilRead: async (msMax) => {
      readUntilMs = performance.now() + msMax;
      await running;
    },
  };
}

/** The markers of the records of a complete export; undefined if it was cut off. */
function markersOf(text: string): string[] | undefined {
  const lines = text.split('\n').filter(Boolean);
  const last = lines.at(-1);
  if (!text.endsWith('\n') || last === undefined || !last.startsWith('{"kind":"end"')) return undefined;
  return lines
    .map((line) => JSON.parse(line) as Line & { properties?: { marker?: string } })
    .filter(({ kind }) => kind !== 'user' && kind !== 'end')
    .map((line) => line.properties?.marker ?? `${line.user_id} is ${line.identity}`);
}
