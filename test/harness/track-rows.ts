// Tables of requests to POST /api/track. Each row is one test: what is sent and what its outcome must be. A ledger
// records what the accepted requests must store and compares that with ClickHouse at the end.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type OutcomeCode, outcomes } from '../../src/contract/outcomes.js';
import type { Deployment } from './sluice.js';
import { differences, type ExpectedEvent, type Reply, type Sent, track, untilStored } from './track.js';

export type ValidEvent = { readonly app_id: string; readonly event: string; readonly identity: string };
export type Fields = Readonly<Record<string, unknown>>;
export type Stored = Partial<ExpectedEvent>;

export type Row = {
  readonly name: string;
  readonly sent: (event: ValidEvent) => Sent;
  /** Absent if the request must be accepted. */
  readonly code?: OutcomeCode;
  /** The field that the refusal names; not checked when absent. */
  readonly field?: string;
  /** How the stored event differs from a valid one. */
  readonly stored?: Stored;
};

/** Accepts a valid event with these fields; undefined leaves a field out. */
export const accepts = (name: string, fields: Fields, stored: Stored = {}): Row => ({
  name,
  sent: (event) => ({ body: { ...event, ...fields } }),
  stored,
});

/** Refuses a valid event with these fields. */
export const refuses = (name: string, code: OutcomeCode, field: string, fields: Fields): Row => ({
  name,
  sent: (event) => ({ body: { ...event, ...fields } }),
  code,
  field,
});

/** Sends anything made of a valid event; accepted when there is no code. */
export const sends = (
  name: string,
  code: OutcomeCode | undefined,
  sent: Row['sent'],
  stored: Stored = {},
): Row => ({ name, sent, stored, ...(code === undefined ? {} : { code }) });

/** Sends a valid event's JSON, changed as text or bytes. */
export const sendsText = (
  name: string,
  code: OutcomeCode | undefined,
  change: (json: string) => string | Uint8Array,
  stored: Stored = {},
): Row => sends(name, code, (event) => ({ body: change(JSON.stringify(event)) }), stored);

/** Adds one property, whose value is given as JSON, to the JSON of an event. */
export const withProperty = (json: string, key: string, value: string): string =>
  json.replace(/\}$/, `,"properties":{${JSON.stringify(key)}:${value}}}`);

/** Records what one environment must have stored. */
export type Ledger = {
  readonly sluice: Deployment;
  readonly appId: string;
  /** A valid event of a new user. */
  newEvent(name: string): ValidEvent;
  /** Records that `event` must be stored, with these differences. */
  expect(event: Pick<ValidEvent, 'event' | 'identity'>, stored?: Stored): void;
  /** Waits until everything is stored, and asserts that nothing else is. */
  check(): Promise<void>;
};

export function openLedger(sluice: Deployment, appId: string): Ledger {
  const fromMs = Date.now();
  const expected: ExpectedEvent[] = [];
  let users = 0;
  return {
    sluice,
    appId,
    newEvent(name) {
      users += 1;
      return { app_id: appId, event: name, identity: `visitor-${String(users).padStart(4, '0')}` };
    },
    expect({ event, identity }, stored) {
      const time = { fromMs, toMs: Date.now() };
      expected.push({ event, identity, user_id: null, session_id: '', properties: {}, time, ...stored });
    },
    async check() {
      const stored = await untilStored(sluice, appId, expected.length);
      assert.deepEqual(differences(expected, stored), []);
    },
  };
}

/** Declares one test per row. The requests are sent one after another. */
export function describeRows(title: string, rows: readonly Row[], ledger: () => Ledger): void {
  describe(title, () => {
    for (const row of rows) {
      const verb = row.code === undefined ? 'takes' : `answers ${outcomes[row.code].status} ${row.code} to`;
      test(`${verb} ${row.name}`, () => run(row, ledger()));
    }
  });
}

async function run(row: Row, ledger: Ledger): Promise<void> {
  const event = ledger.newEvent(row.name);
  const fromMs = Date.now();
  const reply = await track(ledger.sluice.baseUrl, row.sent(event));
  if (row.code === undefined) {
    checkAccepted(reply);
    ledger.expect(event, { time: { fromMs, toMs: Date.now() }, ...row.stored });
  } else checkRefused(reply, row.code, row.field);
}

export function checkAccepted(reply: Reply): void {
  assert.equal(`${reply.status} ${reply.text}`, '200 {}');
  assert.equal(reply.headers.get('content-type'), 'application/json');
}

export function checkRefused(reply: Reply, code: OutcomeCode, field?: string): void {
  assert.equal(reply.status, outcomes[code].status, reply.text);
  assert.equal(reply.headers.get('content-type'), 'application/json');
  const { err } = reply.json as { err: { code: string; message: string; field?: string } };
  assert.equal(err.code, code, reply.text);
  assert.ok(err.message.length > 0);
  if (field !== undefined) assert.equal(err.field, field);
}
