// The pages for people: short where they promise to be, with links that lead somewhere, and with tables that say what
// the code says, in both directions.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { type Config, readConfig } from '../../src/config.js';
import { ConfigError } from '../../src/config-values.js';
import { deletionStates } from '../../src/contract/deletion-states.js';
import {
  bodies,
  counts,
  deletions,
  type LimitName,
  lengths,
  rateLimits,
  suppressions,
  userExports,
} from '../../src/contract/limits.js';
import { outcomes } from '../../src/contract/outcomes.js';
import { consolePaths } from '../../src/http/pages/pages.js';
import { listVariables } from '../harness/configured.js';
import { isThorough, partlyThorough } from '../runner/lanes.js';
import { root } from '../support/deploy-file.js';

type Row = readonly string[];

const pages = listPages();

function listPages(): string[] {
  const skipped = new Set(['node_modules', 'dist', '.data', '.git']);
  const below = (folder: string): string[] =>
    readdirSync(folder, { withFileTypes: true })
      .filter(({ name }) => !skipped.has(name))
      .flatMap((entry) => {
        const path = join(folder, entry.name);
        return entry.isDirectory() ? below(path) : path.endsWith('.md') ? [relative(root, path)] : [];
      });
  return below(root).sort();
}

function readPage(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

/** A page without its blocks of code. */
function prose(path: string): string {
  return readPage(path).replaceAll(/^```[\s\S]*?^```$/gm, '');
}

function readRows(path: string, header: string): Row[] {
  const tables = readPage(path).split(`\n${header}\n`).slice(1);
  assert.ok(tables.length > 0, `${path} has a table ${header}`);
  return tables.flatMap((text) => {
    const [, ...lines] = text.split('\n');
    const end = lines.findIndex((line) => !line.startsWith('|'));
    return lines.slice(0, end === -1 ? undefined : end).map((line) =>
      line
        .slice(1, -1)
        .split('|')
        .map((cell) => cell.trim()),
    );
  });
}

function sorted(rows: readonly Row[]): Row[] {
  return rows.toSorted((a, b) => a.join().localeCompare(b.join(), 'en'));
}

test('the README has at most 150 lines', () => {
  assert.ok(readPage('README.md').split('\n').length <= 151);
});

test('every help link of the console leads to a page and a heading that exist', () => {
  const folder = join(root, 'src/console');
  const sources = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((path) =>
    /\.tsx$/.test(path),
  );
  const targets = sources.flatMap((path) =>
    [...readFileSync(join(folder, path), 'utf8').matchAll(/<Help\s+page="([^"]+)"/g)].map(([, page]) =>
      String(page),
    ),
  );
  assert.ok(targets.length >= 10, targets.join());
  assert.deepEqual(
    targets.filter((target) => !/^(src|deploy)\//.test(target) || !leadsSomewhere('README.md', target)),
    [],
  );
});

test('every link of every page leads to a file and a heading that exist', () => {
  assert.ok(pages.length >= 15, pages.join());
  const broken = pages.flatMap((page) =>
    [...prose(page).matchAll(/\]\(([^()\s]+)\)/g)]
      .map(([, target]) => String(target))
      .filter((target) => !/^https?:/.test(target) && !leadsSomewhere(page, target))
      .map((target) => `${page}: ${target}`),
  );
  assert.deepEqual(broken, []);
});

function leadsSomewhere(page: string, target: string): boolean {
  const [file, anchor] = target.split('#');
  const path = file === '' ? join(root, page) : resolve(root, dirname(page), String(file));
  if (!existsSync(path)) return false;
  return anchor === undefined || anchorsOf(relative(root, path)).has(anchor);
}

function anchorsOf(page: string): Set<string> {
  return new Set(
    [...prose(page).matchAll(/^#{1,4} (.*)$/gm)].map(([, title]) =>
      String(title)
        .toLowerCase()
        .replaceAll(' ', '-')
        .replaceAll(/[^\w-]/g, ''),
    ),
  );
}

test('the README leads to every page that is not about results', () => {
  const named = readPage('README.md');
  const missing = pages.filter(
    (page) => page !== 'README.md' && !/\/results\/|RESULTS/.test(page) && !named.includes(`(${page})`),
  );
  assert.deepEqual(missing, []);
});

test('the page on tests has a row for every folder of test/, and the tour one for every folder of src/', () => {
  const folders = (path: string) =>
    readdirSync(join(root, path), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
  const tests = readRows('test/README.md', '| folder | holds |')
    .map(([names]) => names)
    .join(' ');
  for (const name of folders('test')) assert.ok(tests.includes(`\`${name}\``), `test/${name}`);
  const rooms = readRows('src/README.md', '| room | holds |').flat().join(' ');
  for (const name of folders('src')) assert.ok(rooms.includes(`\`src/${name}/\``), `src/${name}`);
});

test('every file that the tour names exists', () => {
  const files = ['src', 'workers', 'deploy', 'test', 'bench'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map(
      (file) => `/${folder}/${file}`,
    ),
  );
  const tour = readPage('src/README.md').replaceAll('../', '');
  const named = [...tour.matchAll(/(?<![\w*/.-])[\w-]+(?:[\w./-]*[\w-])?\.(?:tsx?|lua|sql|json|md)\b/g)].map(
    ([name]) => name,
  );
  assert.ok(named.length > 50, String(named.length));
  const missing = named.filter(
    (name) => name !== 'redis/NAME-KEYS.lua' && !files.some((file) => file.endsWith(`/${name}`)),
  );
  assert.deepEqual(missing, []);
});

test('every test that the page of promises names exists', () => {
  const files = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' });
  const named = [...readPage('src/INVARIANTS.md').matchAll(/`([a-z][a-z-]*)`/g)].map(([, name]) => name);
  assert.ok(named.length > 200, String(named.length));
  assert.deepEqual(
    named.filter((name) => !files.some((file) => file.endsWith(`/${name}.test.ts`))),
    [],
  );
});

test('the page of promises marks the tests that only test:all runs', () => {
  const partly = new Set(partlyThorough().map(([name]) => name));
  const named = [...readPage('src/INVARIANTS.md').matchAll(/`([a-z][a-z-]*)`(°?)/g)];
  const wrong = named.filter(([, name = '', mark]) =>
    isThorough(name) ? mark === '' : mark !== '' && !partly.has(name),
  );
  assert.deepEqual(
    wrong.map(([text]) => text),
    [],
  );
  assert.ok(named.some(([, , mark]) => mark !== ''));
});

test('the server answers at the address of every page of the console', () => {
  const addresses = [...readPage('src/console/pages/pages.tsx').matchAll(/^ +path: '(.*)',$/gm)].map(
    ([, path]) => path,
  );
  assert.ok(addresses.length > 5);
  assert.deepEqual(
    addresses.filter((path) => !consolePaths.includes(path ?? '')),
    [],
  );
});

test('the table of error codes says what the contract says', () => {
  assert.deepEqual(
    readRows('src/http/README.md', '| code | status | send again | meaning |'),
    Object.entries(outcomes).map(([code, { status, retry, meaning }]) => [
      `\`${code}\``,
      String(status),
      retry,
      meaning,
    ]),
  );
});

test('the table of states of a pending deletion says what the contract says', () => {
  assert.deepEqual(
    readRows('src/privacy/deletion/README.md', '| state | meaning |'),
    Object.entries(deletionStates)
      .filter(([state]) => state !== 'complete')
      .map(([state, meaning]) => [`\`${state}\``, meaning]),
  );
});

describe('the tables of limits say what the contract says', () => {
  const page = 'src/http/README.md';
  const grouped = (count: number) => count.toLocaleString('en');
  const binary = (bytes: number) =>
    bytes % 1024 ** 2 === 0 ? `${bytes / 1024 ** 2} MiB` : `${bytes / 1024} KiB`;
  const characters = (length: number) => `${length} characters`;

  test('rate limits, with their names and defaults', () => {
    const expected = (Object.keys(rateLimits) as LimitName[]).map((name) => {
      const { max, windowMs } = rateLimits[name];
      return [`\`${name}\``, `${grouped(max)} in any ${windowMs / 1000} s`];
    });
    const shown = readRows(page, '| name | default | counts |').map(([name, value]) => [name, value]);
    assert.deepEqual(shown, expected);
  });

  test('limits of the deletion API', () => {
    assert.deepEqual(readRows(page, '| limit | at most |'), [
      ['pending deletion requests of an account', grouped(deletions.pendingPerAccountMax)],
      ['failed token requests per app_id and address', `${deletions.tokenFailuresPerMinuteMax} a minute`],
      ['exports of an account within 24 hours', grouped(userExports.perAccountMax)],
      [
        'names in pending deletion requests of an account, and of all',
        `${binary(deletions.pendingWeightPerAccountMax)}, ${binary(deletions.pendingWeightMax)}`,
      ],
      [
        'names in exports of an account, and of all',
        `${binary(userExports.weightPerAccountMax)}, ${binary(userExports.weightMax)}`,
      ],
      [
        'downloads of exports at once, in one API process',
        `${userExports.downloads.atOnceMax}, of one account ${userExports.downloads.ofAccountMax}`,
      ],
      ['live tokens of an API key', grouped(deletions.liveTokensPerKeyMax)],
      ['tokens of an account, also those of former keys', grouped(deletions.tokensPerAccountMax)],
      [
        'requests for a status or about exports with one token',
        `${deletions.statusRequestsPerSecondMax} a second`,
      ],
      ['submissions of suppressed users with one token', `${suppressions.requestsPerSecondMax} a second`],
      [
        'names of suppressed users of an account, including the names of merged users',
        grouped(suppressions.namesPerAccountMax),
      ],
      [
        'anonymous users who are suppressed because they were identified as suppressed users, of an environment',
        `${grouped(suppressions.joins.max)} a minute`,
      ],
      ['the same of one identity', grouped(suppressions.joinedPerIdentityMax)],
      ['the same of an account', grouped(suppressions.joinedPerAccountMax)],
    ]);
  });

  test('sizes: every body, length and count, and nothing else', () => {
    const namesOfBodies: Record<keyof typeof bodies, string> = {
      singleBytesMax: 'body of any other request',
      bulkBytesMax: 'body of a request with many records',
      collectBytesMax: 'body of `/api/collect`',
      segmentBytesMax: "body of a batch of Segment's protocol",
      deletionBytesMax: 'body of a deletion request',
      lookupBytesMax: 'body of a look-up in a deletion',
      pairingBytesMax: 'body of a request for a pairing',
      adminBytesMax: 'body of a request to the administration',
      adminListBytesMax: 'the same, with users or a certificate',
      accessBytesMax: 'body of a sign-in to the console',
    };
    const namesOfLengths: Record<keyof typeof lengths, string> = {
      eventMax: 'event name',
      identityMax: 'identity',
      sessionIdMax: 'session_id',
      idempotencyKeyMax: 'idempotency key',
      propertyKeyMax: 'property key',
      propertyValueMax: 'property value of an event',
      joinedArrayMax: 'elements in an array, joined',
      userPropertyValueMax: 'property value of a user',
      clientEventMax: 'event name in the client library',
      clientIdentityMax: 'identity in the client library',
      pairingMax: 'secret of a pairing',
    };
    const namesOfCounts: Record<keyof typeof counts, string> = {
      propertiesMax: 'properties of an object',
      bulkEventsMax: 'events in a bulk request',
      bulkUsersMax: 'users in a bulk request',
      collectMessagesMax: 'messages in a request to `/api/collect`',
      segmentMessagesMax: "messages in a batch of Segment's protocol",
      deletionTargetsMax: 'users in a deletion request',
      lookupUsersMax: 'users in a look-up in a deletion',
      exportUsersMax: 'users in a request for an export',
      receiptKeysMax: 'keys in a request for receipts',
      documentDepthMax: 'levels of nesting in JSON',
      documentContainersMax: 'arrays and objects in a request of more than 64 KiB',
      documentNamesMax: 'names in a request of more than 64 KiB',
      documentElementsMax: 'elements in the arrays and objects of a request of more than 64 KiB',
      recordContainersMax: 'arrays and objects in a record of such a request',
      recordNamesMax: 'names in a record of such a request',
      recordElementsMax: 'elements in the arrays and objects of a record of such a request',
      recordLongNumeralsMax: 'numbers with so many digits in a record of a request of more than 64 KiB',
      documentLongNumeralsMax: 'numbers in a request that have more than 15 digits or an extreme exponent',
    };
    const rows = <Name extends string>(
      names: Record<Name, string>,
      values: Readonly<Record<Name, number>>,
      say: (value: number) => string,
    ): Row[] => (Object.keys(names) as Name[]).map((name) => [names[name], say(values[name])]);
    assert.deepEqual(
      sorted(readRows(page, '| what | at most |')),
      sorted([
        ...rows(namesOfBodies, bodies, binary),
        ...rows(namesOfLengths, lengths, characters),
        ...rows(namesOfCounts, counts, grouped),
      ]),
    );
  });
});

describe('the table of configuration is what the programs accept', () => {
  const rows = readRows('deploy/CONFIGURATION.md', '| variable | default | values | |').map(
    ([name = '', fallback = '', values = '']) => ({ name: name.replaceAll('`', ''), fallback, values }),
  );
  const literal = (cell: string) => /^`([^`]*)`/.exec(cell)?.[1];
  /** Variables whose default follows from others; the test below says from which. */
  const derived = [
    'ADMIN_BASE_URL',
    'PUBLIC_BASE_URL',
    'TRUSTED_PROXIES',
    'CALLBACK_ALLOW',
    'REDIS_URL',
    'CLICKHOUSE_URL',
    'CLICKHOUSE_CLUSTER',
    'ADMIN_TOKEN',
    'OIDC_ISSUER',
    'OIDC_CLIENT_ID',
    'OIDC_CLIENT_SECRET',
    'SUDO_USER',
    'SHARDS',
  ];

  test('names every variable, and no other', () => {
    assert.deepEqual(rows.map(({ name }) => name).toSorted(), listVariables());
  });

  test('a variable that is set to its default changes nothing', () => {
    for (const { name, fallback } of rows.filter((row) => !derived.includes(row.name))) {
      const value = literal(fallback);
      assert.ok(value, `${name} has a default`);
      assert.deepEqual(readConfig({ [name]: value }), readConfig({}), `${name}=${value}`);
    }
  });

  test('a variable without a value as its default has none, or it follows from other variables', () => {
    const config = readConfig({ HOST: '10.0.0.1', PORT: '1234' });
    assert.equal(config.publicBaseUrl, 'http://10.0.0.1:1234');
    assert.equal(config.adminBaseUrl, 'http://127.0.0.1:8081');
    assert.equal(readConfig({ ADMIN_HOST: '::', ADMIN_PORT: '9' }).adminBaseUrl, 'http://[::1]:9');
    assert.equal(readConfig({ HOST: '::1', PORT: '9' }).publicBaseUrl, 'http://[::1]:9');
    assert.equal(
      readConfig({ ADMIN_BASE_URL: 'https://console.example/' }).adminBaseUrl,
      'https://console.example',
    );
    assert.throws(() => readConfig({ ADMIN_BASE_URL: 'https://a.example/b' }), /ADMIN_BASE_URL must be/);
    assert.deepEqual([config.redisEmbedded, config.clickhouseEmbedded], [true, true]);
    assert.deepEqual([config.adminToken, config.clickhouseCluster], ['', undefined]);
    assert.deepEqual([config.trustedProxies, config.callbackAllow], [[], []]);
    assert.deepEqual(
      rows.filter(({ name }) => derived.includes(name)).map(({ fallback }) => fallback),
      [
        '`http://ADMIN_HOST:ADMIN_PORT`',
        '`http://HOST:PORT`',
        'none',
        'none',
        'the embedded Redis',
        'the embedded ClickHouse',
        'none',
        'none',
        'none',
        'none',
        'none',
        'none',
        '`CLICKHOUSE_SERVERS`',
      ],
    );
    assert.deepEqual([config.shards, readConfig({ CLICKHOUSE_SERVERS: '3' }).shards], [1, 3]);
    assert.equal(config.provider, undefined);
    assert.throws(() => readConfig({ OIDC_ISSUER: 'https://id.example' }), /must be set together/);
    assert.equal(readConfig({ REDIS_URL: 'redis://a,redis://b' }).redisCluster, true);
    assert.equal(readConfig({ REDIS_URL: 'redis://a' }).redisCluster, false);
    const one = { CLICKHOUSE_URL: 'http://a', CLICKHOUSE_CLUSTER: 'c' };
    const several = { ...one, CLICKHOUSE_URL: 'http://a,http://b' };
    assert.equal(readConfig(one).clickhouseTables, 'replicated');
    assert.equal(readConfig(several).clickhouseTables, 'plain');
    assert.throws(() => readConfig({ CLICKHOUSE_TABLES: 'replicated' }), /needs CLICKHOUSE_CLUSTER/);
    assert.throws(
      () => readConfig({ ...several, CLICKHOUSE_TABLES: 'replicated' }),
      /CLICKHOUSE_TABLES must be plain/,
    );
  });

  test('REDIS_URL may be the path of one socket', () => {
    assert.equal(readConfig({ REDIS_URL: '/run/redis/redis.sock' }).redisUrl, '/run/redis/redis.sock');
    assert.equal(readConfig({ REDIS_URL: '/run/redis/redis.sock' }).redisEmbedded, false);
    for (const path of [`/${'a'.repeat(107)}`, '/a.sock,/b.sock', '/a.sock?db=2']) {
      assert.ok(!accepts('REDIS_URL', path), path);
    }
    assert.ok(accepts('REDIS_URL', `/${'a'.repeat(106)}`));
    assert.throws(() => readConfig({ REDIS_URL: '/a.sock', REDIS_CLUSTER: '1' }), /REDIS_CLUSTER must be 0/);
  });

  test('REDIS_URL may name sentinels', () => {
    const { redisSentinels, redisCluster } = readConfig({
      REDIS_URL: 'rediss-sentinel://ann:p%40@a:1,[::1],c/main',
    });
    assert.deepEqual(redisSentinels, {
      sentinels: [
        { host: 'a', port: 1 },
        { host: '::1', port: 26_379 },
        { host: 'c', port: 26_379 },
      ],
      name: 'main',
      tls: true,
      username: 'ann',
      password: 'p@',
    });
    assert.equal(redisCluster, false);
    for (const rest of [
      'a:1,b:2',
      'a:1/',
      'a:x/main',
      'a:1,/main',
      '/main',
      'u:%zz@a/main',
      'a/main?b=1',
      'a/b c',
    ])
      assert.throws(
        () => readConfig({ REDIS_URL: `redis-sentinel://${rest}` }),
        /^Error: REDIS_URL must be redis-sentinel:/,
        rest,
      );
    const url = 'redis-sentinel://a/main';
    assert.throws(() => readConfig({ REDIS_URL: url, REDIS_CLUSTER: '1' }), /REDIS_CLUSTER must be 0/);
  });

  test('a size that is also given in GiB or MiB is that many bytes', () => {
    for (const { name, fallback } of rows) {
      const [, bytes, count, unit] = /^`(\d+)` \((\d+) ([GM])iB\)/.exec(fallback) ?? [];
      assert.equal(bytes === undefined, !fallback.includes('iB'), name);
      assert.equal(Number(bytes ?? 0), Number(count ?? 0) * 1024 ** (unit === 'G' ? 3 : 2), name);
    }
  });

  test('a number may be anything between its bounds, and nothing outside', () => {
    const ranges = rows.filter(({ values }) => /^\d+ to \d+$/.test(values));
    assert.ok(ranges.length >= 15);
    for (const { name, values } of ranges) {
      const [least = 0, most = 0] = values.split(' to ').map(Number);
      for (const value of [least, most]) assert.ok(accepts(name, String(value)), `${name}=${value}`);
      for (const value of [least - 1, most + 1]) assert.ok(!accepts(name, String(value)), `${name}=${value}`);
    }
    const { erasure, ...others } = readConfig({});
    const numbers = [erasure.atOnceBytesMax, ...Object.values(others)].filter(
      (value) => typeof value === 'number',
    );
    assert.equal(ranges.length, numbers.length, 'every number has a range');
  });

  test('a share and a time may be anything within their bounds', () => {
    for (const value of ['0.01', '0.5', '1']) assert.ok(accepts('ERASE_CPU_SHARE', value), value);
    for (const value of ['0', '0.009', '1.1', '2', '-0.1', '1e-1', 'x'])
      assert.ok(!accepts('ERASE_CPU_SHARE', value), value);
    for (const value of ['0s', '90m', '24h', '30d']) assert.ok(accepts('ERASE_WITHIN', value), value);
    for (const value of ['31d', '721h', '24', '1w', '-1h', 'h'])
      assert.ok(!accepts('ERASE_WITHIN', value), value);
  });

  test('a word may be one of the list, and no other', () => {
    const lists = rows.filter(({ values }) => values.startsWith('`'));
    assert.ok(lists.length >= 4);
    for (const { name, values } of lists) {
      const words = [...values.matchAll(/`([^`]+)`/g)].map(([, word]) => String(word));
      for (const word of words) assert.ok(accepts(name, word), `${name}=${word}`);
      const error = refusal(name, 'other');
      assert.ok(error?.includes(`one of ${words.join(', ')}, not `), error);
    }
  });

  /** Other variables that these require. */
  const besides: Readonly<Record<string, NodeJS.ProcessEnv>> = {
    REDIS_CLUSTER: { REDIS_URL: 'redis://a' },
    CLICKHOUSE_TABLES: { CLICKHOUSE_CLUSTER: 'a', CLICKHOUSE_URL: 'http://a' },
  };

  function read(name: string, value: string): Config {
    return readConfig({ ...besides[name], [name]: value });
  }

  function accepts(name: string, value: string): boolean {
    return refusal(name, value) === undefined;
  }

  /** What the refusal of a value says, which names the variable; undefined when it is accepted. */
  function refusal(name: string, value: string): string | undefined {
    try {
      read(name, value);
      return undefined;
    } catch (error) {
      assert.ok(error instanceof ConfigError && error.message.startsWith(`${name} must be `), String(error));
      return error.message;
    }
  }
});
