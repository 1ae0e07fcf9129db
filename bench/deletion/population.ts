// The rows on which deletions are measured, and the check of what is left of them. ClickHouse itself makes the rows: customers
// with ten events each, in both environments of the account; every tenth customer has a merged anonymous past. Each insert has
// a segment number of the past, as if the rows had been loaded over months.

import { columns } from '../../src/clickhouse/tables.js';
import { insertEvents, type MadeEvents } from '../deployment/made-events.js';
import type { Rows } from '../deployment/stored.js';
import { BenchError } from '../failure.js';

export type User = { readonly identity: string } | { readonly user_id: number };

type PopulationOptions = {
  readonly deployment: Rows;
  /** Main Production and another environment of the same account. */
  readonly appIds: readonly [string, string];
  /** Markers, by customer number: identities that occur nowhere else. */
  readonly markers: ReadonlyMap<number, string>;
};

/** A table's number of rows, and the sum of their hashes modulo 2^64. */
type Fingerprint = { readonly rows: number; readonly hash: bigint };
export type Fingerprints = ReadonlyMap<string, Fingerprint>;

const tables = ['stored_events', 'stored_user_properties', 'stored_user_identities'] as const;
const eventsPerCustomer = 10;
const insertRows = 500_000;
const insertEveryDays = 14;
const firstSegment = BigInt(Date.UTC(2025, 0, 5)) * 1000n;
/** Users whose rows are all in one insert. */
export const lonersPerInsert = 3;
/** Per loner. */
const lonerEvents = 10;
const mergedEvery = 10;
const firstUserId = 1_000_000;
const eventNames = ['Page Viewed', 'Product Viewed', 'Product Added', 'Search Performed', 'Order Completed'];

/** What `fill` put into the tables; `segment <= lastSegment` separates it from records that came through the API. */
export class Population {
  events = 0;
  customers = 0;
  inserts = 0;
  readonly #options: PopulationOptions;
  #all: Fingerprints | undefined;

  constructor(options: PopulationOptions) {
    this.#options = options;
  }

  get lastSegment(): string {
    return String(segmentOf(this.inserts));
  }

  /** Adds customers until there are this many events. */
  async fill(events: number): Promise<void> {
    const { rows } = this.#options.deployment;
    this.changed();
    const first = this.events;
    const customers = (events - first) / eventsPerCustomer;
    const range = { firstCustomer: this.customers, customers };
    for (let from = first; from < events; from += insertRows) {
      const count = Math.min(insertRows, events - from);
      const segment = segmentOf(this.inserts);
      await insertEvents(this.#options.deployment, this.#events(from - first, count, segment, range));
      if (from === first) {
        await rows(this.#propertiesInsert(segment, range));
        await rows(this.#identitiesInsert(segment, range));
      }
      this.inserts += 1;
    }
    this.events = events;
    this.customers += customers;
  }

  /** One customer in every hundred; each `set` below 50 selects different ones. */
  customersOfSet(set: number, countMax = Number.POSITIVE_INFINITY): number[] {
    const count = Math.min(countMax, this.customers / 100);
    return Array.from({ length: count }, (_, hundred) => memberOfSet(set, hundred));
  }

  /** How a deletion names a customer: half of those with an anonymous past by their user_id. */
  nameOf(customer: number): User {
    return customer % (2 * mergedEvery) === 0
      ? { user_id: firstUserId + customer }
      : { identity: this.#identityOf(customer) };
  }

  loner(insert: number, which: number): User {
    return { identity: lonerIdentity(String(insert), String(which)) };
  }

  /** Stores the targets of the next comparison; an identity or user_id stands for its whole merged user. */
  async noteTargets(users: readonly User[]): Promise<void> {
    const { rows } = this.#options.deployment;
    await rows('DROP TABLE IF EXISTS default.bench_targets');
    await rows('CREATE TABLE default.bench_targets (identity String, user_id UInt64) ENGINE = Memory');
    const lines = users.flatMap((user) => {
      if ('user_id' in user)
        return [{ user_id: user.user_id }, { identity: this.#identityOf(user.user_id - firstUserId) }];
      const customer = this.#customerOf(user.identity);
      const merged = customer !== undefined && customer % mergedEvery === 0;
      return merged ? [user, { user_id: firstUserId + customer }] : [user];
    });
    const data = lines.map((line) => JSON.stringify(line)).join('\n');
    await rows(`INSERT INTO default.bench_targets FORMAT JSONEachRow\n${data}`);
  }

  /** All rows of `fill`, read again only after `changed`. */
  async all(): Promise<Fingerprints> {
    this.#all ??= await this.#fingerprint('');
    return this.#all;
  }

  /** The rows of the stored targets. */
  targets(): Promise<Fingerprints> {
    return this.#fingerprint(`AND ${isTarget}`);
  }

  changed(): void {
    this.#all = undefined;
  }

  async #fingerprint(condition: string): Promise<Fingerprints> {
    const { rows } = this.#options.deployment;
    const found = new Map<string, Fingerprint>();
    for (const table of tables) {
      // Of a tuple: the hash of several values is null if one of them is null, and the sum leaves it out.
      const [row] = await rows<{ count: string; hash: string }>(
        `SELECT toString(count()) AS count, toString(sum(cityHash64(tuple(*)))) AS hash FROM ${table}
          WHERE segment <= ${this.lastSegment} ${condition}`,
      );
      found.set(table, { rows: Number(row?.count), hash: BigInt(row?.hash ?? 0) });
    }
    return found;
  }

  #events(offset: number, count: number, segment: bigint, range: Range): MadeEvents {
    const [main, other] = this.#options.appIds;
    const lonerStep = Math.floor(insertRows / lonerEvents);
    return {
      count,
      segment: String(segment),
      with: [
        `number + ${offset} AS n`,
        `${range.firstCustomer} + n % ${range.customers} AS customer`,
        `intDiv(n, ${range.customers}) AS nth`,
        `number % ${lonerStep} < ${lonersPerInsert} AS is_loner`,
        `NOT is_loner AND customer % ${mergedEvery} = 0 AND nth % 2 = 0 AS is_anonymous`,
        `cityHash64(${range.firstCustomer}, n) AS random`,
      ],
      appId: `if(nth = 3 AND NOT is_loner, '${other}', '${main}')`,
      event: `[${eventNames.map((name) => `'${name}'`).join(', ')}][1 + random % ${eventNames.length}]`,
      userId: `if(is_anonymous, ${firstUserId} + customer, NULL)`,
      identity: `multiIf(is_anonymous, '', is_loner, ${lonerIdentitySql(this.inserts, lonerStep)}, ${this.#identitySql()})`,
      sessionId: 'hex(cityHash64(customer, intDiv(nth, 3)))',
      msBefore: 'random % 86400000',
      properties: `map(
        'order_id', concat('order-', leftPad(toString(n), 10, '0')),
        'amount', toString((random % 100000) / 100),
        'currency', ['EUR', 'USD', 'GBP', 'JPY'][1 + intDiv(random, 8) % 4],
        'page', concat('/products/', toString(intDiv(random, 32) % 5000))
      )`,
    };
  }

  #propertiesInsert(segment: bigint, range: Range): string {
    return `INSERT INTO stored_user_properties (${withoutId('user_properties')})
      WITH ${range.firstCustomer} + number * ${mergedEvery} AS customer
      SELECT '${this.#options.appIds[0]}', NULL, ${this.#identitySql()},
        map('email', concat('mail-', toString(customer), '@example.com'), 'plan', ['free', 'pro'][1 + number % 2]),
        1 + number % 1000, ${segment}, 1 + intDiv(number, 1000), fromUnixTimestamp64Milli(intDiv(${segment}, 1000), 'UTC')
      FROM numbers(${range.customers / mergedEvery})`;
  }

  #identitiesInsert(segment: bigint, range: Range): string {
    const [main, other] = this.#options.appIds;
    return `INSERT INTO stored_user_identities (${withoutId('user_identities')})
      WITH ${range.firstCustomer} + intDiv(number, 2) * ${mergedEvery} AS customer
      SELECT ['${main}', '${other}'][1 + number % 2], ${firstUserId} + customer, ${this.#identitySql()},
        1 + number % 1000, ${segment}, 1 + intDiv(number, 1000), fromUnixTimestamp64Milli(intDiv(${segment}, 1000), 'UTC')
      FROM numbers(${(2 * range.customers) / mergedEvery})`;
  }

  #identitySql(): string {
    const marked = [...this.#options.markers].map(
      ([customer, text]) => `customer = ${customer}, '${text}', `,
    );
    return `multiIf(${marked.join('')}concat('customer-', leftPad(toString(customer), 7, '0'), '@example.com'))`.replace(
      /^multiIf\((concat.*)\)$/,
      '$1',
    );
  }

  #identityOf(customer: number): string {
    return this.#options.markers.get(customer) ?? `customer-${String(customer).padStart(7, '0')}@example.com`;
  }

  #customerOf(identity: string): number | undefined {
    for (const [customer, text] of this.#options.markers) if (text === identity) return customer;
    const number = /^customer-(\d+)@/.exec(identity)?.[1];
    return number === undefined ? undefined : Number(number);
  }
}

type Range = { readonly firstCustomer: number; readonly customers: number };

/** The customer of a set in one hundred. */
export function memberOfSet(set: number, hundred: number): number {
  return 100 * hundred + ((7 * hundred + set) % 100);
}

/** Throws unless the targets have no row left and all other rows are exactly the same. */
export function assertOnlyTargetsGone(
  before: Fingerprints,
  targets: Fingerprints,
  after: Fingerprints,
  targetsAfter: Fingerprints,
): void {
  for (const table of tables) {
    const [all, gone, left] = [before, targets, after].map((of) => of.get(table)) as [
      Fingerprint,
      Fingerprint,
      Fingerprint,
    ];
    const survivors = targetsAfter.get(table)?.rows;
    if (survivors !== 0) throw new BenchError(`${survivors} rows of targets are left in ${table}`);
    const hash = BigInt.asUintN(64, all.hash - gone.hash);
    if (left.rows !== all.rows - gone.rows || left.hash !== hash) {
      throw new BenchError(
        `${table} had ${all.rows} rows, ${gone.rows} of targets; ${left.rows} are left, or others changed`,
      );
    }
  }
}

const isTarget = `((identity != '' AND identity IN (SELECT identity FROM default.bench_targets))
  OR (user_id IS NOT NULL AND assumeNotNull(user_id) IN (SELECT user_id FROM default.bench_targets WHERE user_id > 0)))`;

function lonerIdentity(insert: string, which: string): string {
  return `loner-${insert}-${which}@example.com`;
}

function lonerIdentitySql(insert: number, step: number): string {
  return `concat('loner-${insert}-', toString(number % ${step}), '@example.com')`;
}

function segmentOf(insert: number): bigint {
  return firstSegment + BigInt(insert * insertEveryDays) * 86_400_000_000n;
}

/** The columns of a table whose rows need no id. */
function withoutId(table: 'user_properties' | 'user_identities'): string {
  return columns[table].filter((column) => column !== 'event_id').join(', ');
}
