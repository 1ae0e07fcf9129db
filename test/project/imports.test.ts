// Who imports whom: layers, rooms, circles; and that promised bounds are in the contract.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join, normalize, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');

/**
 * The rooms from the top: each imports only rooms below it, so there is no circle. A room is a folder, and the rooms within a
 * folder are named where they have an order. What stands above or below all rooms is not a folder.
 */
const rooms: readonly string[] = [
  'wiring',
  'src/libraries/micro',
  'workers',
  'src/http',
  'src/import',
  'src/admin',
  'src/insights',
  'src/ingest',
  'src/operations',
  'src/privacy/cases',
  'src/privacy/export',
  'src/privacy/retention',
  'src/privacy/suppression',
  'src/privacy/deletion',
  'src/accounts',
  'src/registry',
  'src/registry/audit',
  'src/clickhouse',
  'src/redis',
  'process',
  'src/console',
  'src/libraries',
  'src/parsing',
  'src/packages',
  'src/contract',
];
const wiring =
  /^(src\/(main|app|api-context|routes|migrate|stop)|src\/admin\/main|src\/import\/main|workers\/main)\.ts$/;
const process_ =
  /^src\/(config(-\w+)?|tuning|log|metrics|hot-histogram|crash-point|batches|concurrency|spare-buffers|repeat|wait)\.ts$/;

function roomOf(file: string): number {
  if (wiring.test(file)) return rooms.indexOf('wiring');
  if (process_.test(file)) return rooms.indexOf('process');
  const inner = rooms.filter((room) => file.startsWith(`${room}/`)).sort((a, b) => b.length - a.length)[0];
  assert.ok(inner !== undefined, `${file} belongs to no room`);
  return rooms.indexOf(inner);
}

function listFiles(folders: readonly string[]): string[] {
  return folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.tsx?$/.test(file))
      .map((file) => join(folder, file)),
  );
}

/** Every import of one project file by another in these folders. */
function imports(folders: readonly string[] = ['src', 'workers']): { from: string; to: string }[] {
  return listFiles(folders).flatMap((from) => {
    const text = readFileSync(join(root, from), 'utf8');
    return [...text.matchAll(/from '(\.[^']+)'/g)].map(([, path]) => ({
      from,
      to: sourceOf(normalize(join(dirname(from), String(path)))),
    }));
  });
}

function sourceOf(path: string): string {
  const source = path.replace(/\.js$/, '.ts');
  return existsSync(join(root, source)) ? source : `${source}x`;
}

test('a room imports only rooms below it', () => {
  const upward = imports().filter(({ from, to }) => roomOf(from) > roomOf(to));
  assert.deepEqual(upward, []);
  assert.ok(imports().length > 100, 'the imports were found');
});

test('a newcomer sees at most sixteen folders in src', () => {
  const folders = readdirSync(join(root, 'src'), { withFileTypes: true }).filter((each) =>
    each.isDirectory(),
  );
  assert.ok(folders.length <= 16, folders.map(({ name }) => name).join());
});

test('the service imports neither the harness nor its users, and the harness neither tests nor the bench', () => {
  const known = (from: string) =>
    from.startsWith('test/harness/') ? /^(test\/harness|src|workers|deploy)\// : /^(src|workers|deploy)\//;
  for (const { from, to } of imports(['src', 'workers', 'deploy', 'test/harness'])) {
    assert.match(to, known(from), `${from} imports ${to}`);
  }
});

test('tests of several servers use a deployment as its users do', () => {
  const known = /^(test|src\/(crash-point|redis\/keys)\.ts$)/;
  for (const { from, to } of imports(['test/servers'])) assert.match(to, known, `${from} imports ${to}`);
});

test('no imports go in a circle, not even imports of types', () => {
  const importedBy = new Map<string, string[]>();
  for (const { from, to } of imports(['src', 'workers', 'deploy', 'test', 'bench'])) {
    importedBy.set(from, [...(importedBy.get(from) ?? []), to]);
  }
  const done = new Set<string>();
  const visit = (file: string, way: readonly string[]): void => {
    assert.ok(!way.includes(file), `a circle: ${[...way, file].join(' → ')}`);
    if (done.has(file)) return;
    for (const to of importedBy.get(file) ?? []) visit(to, [...way, file]);
    done.add(file);
  };
  for (const file of importedBy.keys()) visit(file, []);
});

test('packages are loaded only as the one file that the build makes of each', () => {
  const bundled = /^src\/(packages\/|contract\/typebox\.ts)/;
  const files = listFiles(['src', 'workers']);
  const loaded = files.flatMap((file) =>
    packagesLoadedBy(readFileSync(join(root, file), 'utf8'))
      .filter((name) => !bundled.test(file) && !isLoadedAsItIs(file, name))
      .map((name) => `${file} loads ${name}`),
  );
  assert.deepEqual(loaded, []);
  for (const file of files.filter((name) => bundled.test(name))) {
    const built = readFileSync(join(root, 'dist', file.replace(/\.ts$/, '.js')), 'utf8');
    assert.deepEqual(packagesLoadedBy(built), [], file);
  }
});

/** The packages from which a file imports or re-exports values, not only types. */
function packagesLoadedBy(text: string): string[] {
  return [...text.matchAll(/\b(?:import|export)\s*(?!type\b)[{*\w][^;]*?from ?['"]([^'"]+)['"]/g)]
    .map(([, name]) => String(name))
    .filter((name) => !name.startsWith('.') && !name.startsWith('node:') && !isBuiltin(name));
}

/**
 * Exceptions: a native module, packages of the importer and of lists only, what callers of the library for React have, and the console,
 * which is built as one file with its packages.
 */
function isLoadedAsItIs(file: string, name: string): boolean {
  return (
    name === 'uWebSockets.js' ||
    /^src\/(import|console|parsing\/csv)\//.test(file) ||
    file === 'src/libraries/client/react.ts' ||
    // The programs in it are texts.
    file === 'src/libraries/examples.ts'
  );
}

test('Redis and ClickHouse do not know each other', () => {
  const between = imports().filter(
    ({ from, to }) =>
      (from.startsWith('src/redis/') && to.startsWith('src/clickhouse/')) ||
      (from.startsWith('src/clickhouse/') && to.startsWith('src/redis/')),
  );
  assert.deepEqual(between, []);
});

test('within HTTP, endpoints and pages know the protocol and the documents of routes, but not each other', () => {
  const partOf = (file: string) => /^src\/http\/([^/]+)\//.exec(file)?.[1];
  const parts = new Set(imports().map(({ from }) => partOf(from)));
  parts.delete(undefined);
  assert.deepEqual([...parts].sort(), ['endpoints', 'openapi', 'pages', 'protocol']);
  const across = imports().filter(
    ({ from, to }) =>
      from.startsWith('src/http/') &&
      to.startsWith('src/http/') &&
      ![partOf(from), 'protocol'].includes(partOf(to)) &&
      (partOf(to) !== 'openapi' || partOf(from) === 'protocol'),
  );
  assert.deepEqual(across, []);
});

test('ingestion does not depend on how administrators see refused or mended records', () => {
  const upward = imports().filter(
    ({ from, to }) => from.startsWith('src/ingest/') && to.startsWith('src/insights/data-quality/'),
  );
  assert.deepEqual(upward, []);
});

test('lengths, outcomes, identities and roles import nothing, so that they fit into a browser', () => {
  for (const file of ['lengths', 'outcomes', 'identities', 'roles']) {
    const text = readFileSync(join(root, `src/contract/${file}.ts`), 'utf8');
    assert.doesNotMatch(text, /^import /m, relative(root, file));
  }
});

test('the client library imports only itself and the contract, and the server only its snippet, for the demo and for examples', () => {
  const ofSnippet = ['src/http/pages/demo.ts', 'src/libraries/examples.ts'];
  const known = /^src\/(libraries\/client\/.*|contract\/(lengths|limits|outcomes|identities)\.ts)$/;
  for (const { from, to } of imports()) {
    if (from.startsWith('src/libraries/client/')) assert.match(to, known, from);
    else if (from.startsWith('src/console/demo/')) continue;
    else if (!ofSnippet.includes(from)) assert.doesNotMatch(to, /^src\/libraries\/client\//, from);
    else if (to.startsWith('src/libraries/client/')) assert.equal(to, 'src/libraries/client/web/snippet.ts');
  }
});

test('the console imports only itself, the contract and the reader of lists, and nothing imports it', () => {
  /** The demo is its own document, and shows what the library does. */
  const ofDemo = /^src\/(console\/(?!pages\/)|libraries\/client\/)/;
  const known =
    /^src\/(console\/.*|parsing\/csv\/.*|contract\/(administration-answers|deletion-states|lengths|limits|outcomes|roles)\.ts)$/;
  for (const { from, to } of imports()) {
    if (from.startsWith('src/console/')) assert.match(to, from.includes('/demo/') ? ofDemo : known, from);
    else assert.doesNotMatch(to, /^src\/console\//, from);
    // A browser needs only the types of this file, not its schemas.
    if (from.startsWith('src/console/') && to.endsWith('/administration-answers.ts'))
      assert.match(
        readFileSync(join(root, from), 'utf8'),
        /import type \{[^}]*\} from '[./]+contract\/administration-answers/,
      );
  }
});

test('the library for servers imports only itself, the contract, and Node', () => {
  const known =
    /^src\/(libraries\/producer\/.*|contract\/(deletion-states|lengths|limits|outcomes|records)\.ts)$/;
  for (const { from, to } of imports()) {
    if (from.startsWith('src/libraries/producer/')) assert.match(to, known, from);
    // An import claims its files as a spool claims its folder.
    else if (from !== 'src/import/claims.ts') assert.doesNotMatch(to, /^src\/libraries\/producer\//, from);
  }
  for (const file of readdirSync(join(root, 'src/libraries/producer'))) {
    const text = readFileSync(join(root, 'src/libraries/producer', file), 'utf8');
    if (file.endsWith('.ts')) assert.doesNotMatch(text, / from '(?!\.|node:)/, file);
    // Its schemas need a package, its types do not.
    assert.doesNotMatch(text, /^import (?!type ).*contract\/records/m, file);
  }
});

test('the client library needs no package, except React in its part for React', () => {
  const files = readdirSync(join(root, 'src/libraries/client'), { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ts') && name !== 'react.ts')) {
    const text = readFileSync(join(root, 'src/libraries/client', file), 'utf8');
    assert.doesNotMatch(text, /from '[^.']|import\('|import '[^.]/, file);
  }
});

test('edges, administration and the subjects take all bounds that callers meet from the contract', () => {
  const bounded =
    /^src\/(accounts|admin|http|import|insights|privacy\/(export|suppression)|registry\/audit)\//;
  const forms = [
    // A constant or a property with a unit in its name.
    /^(?:export )?(?:const| +) *\w+(?:Max|Min|Seconds)\b[^=:\n]*[=:] *[\d(].*/gm,
    // A comparison with a number that is no status code.
    /(?<![<>])[<>]=? (?!(?:200|300|400|500)\b)\d[\d_]*\d\b.*/g,
    // How often something repeats in a form, and how long an answer is good.
    /\{\d*,\d+\}.*/g,
    /max-age=\d.*/g,
  ];
  const found = listFiles(['src'])
    .filter((file) => bounded.test(file))
    .flatMap((file) => {
      const text = readFileSync(join(root, file), 'utf8').replaceAll(/^ *(\/\/|\*|\/\*).*$/gm, '');
      return forms.flatMap((form) => [...text.matchAll(form)].map(([line]) => `${file}: ${line.trim()}`));
    });
  const unknown = found.filter(
    (line) => !ownNumbers.some(([file, text]) => line.startsWith(`${file}: `) && line.includes(text)),
  );
  assert.deepEqual(unknown, []);
  for (const [file, text] of ownNumbers) {
    assert.ok(
      found.some((line) => line.startsWith(`${file}: `) && line.includes(text)),
      `${file}: ${text}`,
    );
  }
});

/** Numbers that nobody can meet, or that another standard sets. */
const ownNumbers: readonly (readonly [file: string, text: string])[] = [
  // Forms: of names, of what the service itself makes, and of what is compared with a bound afterwards.
  ['src/admin/commands/deletions.ts', '{1,9}$/.test(from)'],
  ['src/insights/data-quality/rejected-records.ts', '{0,63}$/'],
  ['src/http/endpoints/admin-caller.ts', '{1,300}$/'],
  ['src/http/endpoints/deletion-status.ts', '{1,9}$/'],
  ['src/http/pages/demo.ts', '{0,15})$'],
  ['src/http/protocol/authorization.ts', '{0,2})'],
  ['src/http/protocol/framing.ts', '{1,19}$/'],
  ['src/import/times.ts', '{1,9})'],
  ['src/import/times.ts', '{1,2})'],
  ['src/import/values.ts', '{1,3}(?:'],
  ['src/import/values.ts', '{1,3},'],
  ['src/insights/traffic/live.ts', '{1,20}$/'],
  ['src/insights/users/time-line.ts', '{1,15} '],
  // Times: what a clock, an offset and a date can be.
  ['src/import/times.ts', 'instantMax'],
  ['src/import/times.ts', '> 12'],
  ['src/import/zones.ts', '> 59'],
  // The width of the usage.
  ['src/admin/command-line.ts', '{60,110}?'],
  ['src/admin/command-line.ts', '> 60 ?'],
  // How work is divided and repeated.
  ['src/admin/failed.ts', 'tokensMax'],
  ['src/privacy/export/tables.ts', 'waitMs *= 2'],
  ['src/import/row.ts', 'chunkBytesMax'],
  ['src/import/parquet-rows.ts', 'decodedRowsMax'],
  ['src/import/sender.ts', 'pauseMsMax'],
  ['src/import/sender.ts', 'asked++'],
  ['src/insights/visualizer/pairings.ts', 'codeAttemptsMax'],
  // The layout of names in memory.
  ['src/privacy/suppression/name-set.ts', 'slotsMin'],
  ['src/privacy/suppression/name-set.ts', 'loadMax'],
  ['src/privacy/suppression/names.ts', '> 16 ?'],
];

test('only the protocol of HTTP uses uWebSockets.js, endpoints and pages only its types, and only the configuration reads the environment', () => {
  for (const from of listFiles(['src', 'workers'])) {
    const text = readFileSync(join(root, from), 'utf8');
    if (!from.startsWith('src/http/')) assert.doesNotMatch(text, /from 'uWebSockets\.js'/, from);
    if (!from.startsWith('src/http/protocol/')) {
      assert.doesNotMatch(text, /import (?!type)[^;]*from 'uWebSockets\.js'/, from);
    }
    // The importer is a program of producers, with two secrets that must not stand on a command line.
    // uWebSockets.js takes its bound on headers only from there.
    if (!['src/config.ts', 'src/import/main.ts', 'src/http/protocol/front.ts'].includes(from))
      assert.doesNotMatch(text, /process\.env/, from);
  }
});

/** Who reads answers itself. All others read them through `answers.ts`, which proves that they are complete. */
const sending: Readonly<Record<string, string>> = {
  'src/admin/clickhouse.ts': "prints what an operator's statement answers",
  'src/clickhouse/answers.ts': 'proves answers',
  'src/clickhouse/error-texts.ts': 'the statement only fails',
  'src/clickhouse/move-rows.ts': 'copies rows, which are compared afterwards',
  'src/clickhouse/store.ts': 'inserts',
  'src/privacy/deletion/round-parts.ts': 'inserts',
};

test('nobody reads an answer of ClickHouse past the proof that it is whole', () => {
  const files = listFiles(['src', 'workers']).filter((file) => {
    const text = readFileSync(join(root, file), 'utf8');
    return /\.(?:exec\(\{|exec\(question|query\()/.test(text);
  });
  assert.deepEqual(files.sort(), Object.keys(sending));
  for (const file of files)
    assert.doesNotMatch(readFileSync(join(root, file), 'utf8'), /\.query\(/, `${file}: use answers.ts`);
});
