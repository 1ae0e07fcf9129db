// The rows on which deletions are measured, and the check of what is left of them. ClickHouse itself makes the rows: customers with ten
// events each, in both environments of the account. Every tenth customer was anonymous at first. Each insert has a segment number from the
// past, as if the rows had been loaded over months.

import { columns } from '../../src/clickhouse/tables.js';
import { insertEvents, type MadeEvents, rowsPerInsert } from '../deployment/made-events.js';
import type { Rows } from '../deployment/stored.js';
import { BenchError } from '../failure.js';

export type User = { readonly identity: string } | { readonly user_id: number };

/** A table's number of rows, and the sum of their hashes modulo 2^64. */
type Fingerprint = { readonly rows: number; readonly hash: bigint };

const tables = ['stored_events', 'stored_user_properties', 'stored_user_identities'] as const;
type Fingerprints = Readonly<Record<(typeof tables)[number], Fingerprint>>;

const eventsPerCustomer = 10;
const dayMs = 86_400_000;
const insertEveryDaysMax = 14;
const firstInsertMs = Date.UTC(2025, 0, 5);
/** How many users per insert have all of their rows in it. */
export const lonersPerInsert = 3;
const eventsPerLoner = 10;
const lonerStep = rowsPerInsert / eventsPerLoner;
const mergedEvery = 10;
const firstUserId = 1_000_000;
const eventNames = ['Page Viewed', 'Product Viewed', 'Product Added', 'Search Performed', 'Order Completed'];

type Range = { readonly firstCustomer: number; readonly customers: number };

/** The rows that `fill` put into the tables. Their segment numbers separate them from records that came through the API. */
export class Population {
  events = 0;
  customers = 0;
  inserts = 0;
  readonly #rows: Rows['rows'];
  readonly #appIds: readonly [string, string];
  readonly #markers: ReadonlyMap<number, string>;
  readonly #insertEveryDays: number;
  /** The fingerprints of all rows of `fill`; undefined after they may have changed. */
  #all: Fingerprints | undefined;

  /**
   * `appIds`: of Main Production and another environment. `eventsMax`: how many events there will be, so that all inserts can lie in the
   * past, since a deletion leaves what was accepted after its request. `markers`: identities that occur nowhere else, by customer.
   */
  constructor(
    { rows }: Rows,
    appIds: readonly [string, string],
    eventsMax: number,
    markers: ReadonlyMap<number, string> = new Map(),
  ) {
    this.#rows = rows;
    this.#appIds = appIds;
    this.#markers = markers;
    const days = (Date.now() - firstInsertMs) / dayMs;
    this.#insertEveryDays = Math.min(insertEveryDaysMax, Math.floor(days / (eventsMax / rowsPerInsert + 1)));
  }

  async fill(events: number): Promise<void> {
    this.#all = undefined;
    const more = events - this.events;
    const range = { firstCustomer: this.customers, customers: more / eventsPerCustomer };
    await this.#insertUsers(this.#segmentOf(this.inserts), range);
    await insertEvents({ rows: this.#rows }, 0, more, (_from, insert) =>
      this.#eventsOf(this.inserts + insert, range),
    );
    this.inserts += Math.ceil(more / rowsPerInsert);
    this.events = events;
    this.customers += range.customers;
  }

  /** One of every hundred customers. Each `set` below 100 selects different ones. */
  customersOfSet(set: number, countMax = Number.POSITIVE_INFINITY): number[] {
    const count = Math.min(countMax, this.customers / 100);
    return Array.from({ length: count }, (_, hundred) => memberOfSet(set, hundred));
  }

  /** How a deletion names a customer: by the user_id for half of those who were anonymous at first, otherwise by the identity. */
  nameOf(customer: number): User {
    return customer % (2 * mergedEvery) === 0
      ? { user_id: firstUserId + customer }
      : { identity: this.#identityOf(customer) };
  }

  loner(insert: number, which: number): User {
    return { identity: `loner-${insert}-${which}@example.com` };
  }

  /**
   * Calls `work`, which must delete the users, with the number of their rows. Rejects unless all these rows are gone and all other rows are
   * unchanged.
   */
  async comparing<Result>(users: readonly User[], work: (rows: number) => Promise<Result>): Promise<Result> {
    await this.#noteTargets(users);
    const before = this.#all ?? (await this.#fingerprints(''));
    const targets = await this.#fingerprints(isTarget);
    const result = await work(tables.reduce((sum, table) => sum + targets[table].rows, 0));
    const [after, left] = [await this.#fingerprints(''), await this.#fingerprints(isTarget)];
    this.#all = after;
    for (const table of tables) {
      const [all, gone, rest] = [before[table], targets[table], after[table]];
      if (left[table].rows !== 0) {
        throw new BenchError(`${left[table].rows} rows of targets are left in ${table}`);
      }
      const hash = BigInt.asUintN(64, all.hash - gone.hash);
      if (rest.rows !== all.rows - gone.rows || rest.hash !== hash) {
        throw new BenchError(
          `${table} had ${all.rows} rows, ${gone.rows} of targets; ${rest.rows} are left, or others changed`,
        );
      }
    }
    return result;
  }

  /** Stores the targets of a comparison. An identity or user_id stands for its whole merged user. */
  async #noteTargets(users: readonly User[]): Promise<void> {
    await this.#rows('DROP TABLE IF EXISTS default.bench_targets');
    await this.#rows('CREATE TABLE default.bench_targets (identity String, user_id UInt64) ENGINE = Memory');
    const lines = users.flatMap((user) => {
      if ('user_id' in user) return [user, { identity: this.#identityOf(user.user_id - firstUserId) }];
      const customer = this.#customerOf(user.identity);
      const merged = customer !== undefined && customer % mergedEvery === 0;
      return merged ? [user, { user_id: firstUserId + customer }] : [user];
    });
    const data = lines.map((line) => JSON.stringify(line)).join('\n');
    await this.#rows(`INSERT INTO default.bench_targets FORMAT JSONEachRow\n${data}`);
  }

  async #fingerprints(condition: string): Promise<Fingerprints> {
    const found: Partial<Record<(typeof tables)[number], Fingerprint>> = {};
    for (const table of tables) {
      // Hashes a tuple: a hash of several values is null if one of them is null, and the sum would leave it out.
      const [row] = await this.#rows<{ count: string; hash: string }>(
        `SELECT toString(count()) AS count, toString(sum(cityHash64(tuple(*)))) AS hash FROM ${table}
          WHERE segment <= ${this.#segmentOf(this.inserts)} ${condition}`,
      );
      found[table] = { rows: Number(row?.count), hash: BigInt(row?.hash ?? 0) };
    }
    return found as Fingerprints;
  }

  #eventsOf(insert: number, range: Range): MadeEvents {
    const [main, other] = this.#appIds;
    const lonerIdentity = `concat('loner-${insert}-', toString(number % ${lonerStep}), '@example.com')`;
    return {
      segment: String(this.#segmentOf(insert)),
      with: [
        `${range.firstCustomer} + n % ${range.customers} AS customer`,
        `intDiv(n, ${range.customers}) AS nth`,
        `number % ${lonerStep} < ${lonersPerInsert} AS is_loner`,
        `NOT is_loner AND customer % ${mergedEvery} = 0 AND nth % 2 = 0 AS is_anonymous`,
        `cityHash64(${range.firstCustomer}, n) AS random`,
      ],
      appId: `if(nth = 3 AND NOT is_loner, '${other}', '${main}')`,
      event: `[${eventNames.map((name) => `'${name}'`).join(', ')}][1 + random % ${eventNames.length}]`,
      userId: `if(is_anonymous, ${firstUserId} + customer, NULL)`,
      identity: `multiIf(is_anonymous, '', is_loner, ${lonerIdentity}, ${this.#identitySql()})`,
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

  /** Inserts properties and identifications of the customers who were anonymous at first. */
  async #insertUsers(segment: bigint, { firstCustomer, customers }: Range): Promise<void> {
    const [main, other] = this.#appIds;
    const insert = (table: 'user_properties' | 'user_identities', each: number, values: string) =>
      this.#rows(`INSERT INTO stored_${table} (${withoutId(table)})
        WITH ${firstCustomer} + intDiv(number, ${each}) * ${mergedEvery} AS customer
        SELECT ${values}, 1 + number % 1000, ${segment}, 1 + intDiv(number, 1000),
          fromUnixTimestamp64Milli(intDiv(${segment}, 1000), 'UTC')
        FROM numbers(${(each * customers) / mergedEvery})`);
    const properties = `map('email', concat('mail-', toString(customer), '@example.com'), 'plan', ['free', 'pro'][1 + number % 2])`;
    await insert('user_properties', 1, `'${main}', NULL, ${this.#identitySql()}, ${properties}`);
    const appId = `['${main}', '${other}'][1 + number % 2]`;
    await insert('user_identities', 2, `${appId}, ${firstUserId} + customer, ${this.#identitySql()}`);
  }

  #segmentOf(insert: number): bigint {
    return BigInt(firstInsertMs + insert * this.#insertEveryDays * dayMs) * 1000n;
  }

  #identitySql(): string {
    const usual = "concat('customer-', leftPad(toString(customer), 7, '0'), '@example.com')";
    const marked = [...this.#markers].map(([customer, text]) => `customer = ${customer}, '${text}', `);
    return marked.length === 0 ? usual : `multiIf(${marked.join('')}${usual})`;
  }

  #identityOf(customer: number): string {
    return this.#markers.get(customer) ?? `customer-${String(customer).padStart(7, '0')}@example.com`;
  }

  #customerOf(identity: string): number | undefined {
    for (const [customer, text] of this.#markers) if (text === identity) return customer;
    const number = /^customer-(\d+)@/.exec(identity)?.[1];
    return number === undefined ? undefined : Number(number);
  }
}

/** The customer that a set selects from a hundred. */
export function memberOfSet(set: number, hundred: number): number {
  return 100 * hundred + ((7 * hundred + set) % 100);
}

const isTarget = `AND ((identity != '' AND identity IN (SELECT identity FROM default.bench_targets))
  OR (user_id IS NOT NULL AND assumeNotNull(user_id) IN (SELECT user_id FROM default.bench_targets WHERE user_id > 0)))`;

/** The columns of a table but its id and time, for rows that need neither. */
function withoutId(table: 'user_properties' | 'user_identities'): string {
  return columns[table].filter((column) => column !== 'event_id' && column !== 'time').join(', ');
}
