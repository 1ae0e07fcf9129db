import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');

/** Layers from the top; a file belongs to the first whose form it has. */
const layers: readonly (readonly [name: string, form: RegExp])[] = [
  ['wiring', /^(src\/(main|migrate|stop)|src\/admin\/.*|workers\/main)\.ts$/],
  ['edges', /^(src\/http\/|workers\/)/],
  ['subjects', /^src\/(ingest|accounts|deletion|visualizer)\//],
  ['adapters', /^src\/(redis|clickhouse)\//],
  ['process', /^src\/(config|log|metrics|crash-point)\.ts$/],
  ['client', /^src\/client\//],
  ['contract', /^src\/contract\//],
];

function layerOf(file: string): number {
  const layer = layers.findIndex(([, form]) => form.test(file));
  assert.notEqual(layer, -1, `${file} belongs to no layer`);
  return layer;
}

/** Every import of a project file by another one. */
function imports(): { from: string; to: string }[] {
  const files = ['src', 'workers'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts'))
      .map((file) => join(folder, file)),
  );
  return files.flatMap((from) => {
    const text = readFileSync(join(root, from), 'utf8');
    return [...text.matchAll(/from '(\.[^']+)'/g)].map(([, path]) => ({
      from,
      to: normalize(join(dirname(from), String(path))).replace(/\.js$/, '.ts'),
    }));
  });
}

test('imports point down the layers', () => {
  const upward = imports().filter(({ from, to }) => layerOf(from) > layerOf(to));
  assert.deepEqual(upward, []);
  assert.ok(imports().length > 100, 'the imports were found');
});

test('Redis and ClickHouse do not know each other', () => {
  const between = imports().filter(
    ({ from, to }) =>
      (from.startsWith('src/redis/') && to.startsWith('src/clickhouse/')) ||
      (from.startsWith('src/clickhouse/') && to.startsWith('src/redis/')),
  );
  assert.deepEqual(between, []);
});

test('lengths, outcomes and identities import nothing, so that a browser can have them', () => {
  for (const file of ['lengths', 'outcomes', 'identities']) {
    const text = readFileSync(join(root, `src/contract/${file}.ts`), 'utf8');
    assert.doesNotMatch(text, /^import /m, relative(root, file));
  }
});

test('the client library knows only itself and what is promised, and the server only its snippet, for the demo', () => {
  const known = /^src\/(client\/.*|contract\/(lengths|limits|outcomes|identities)\.ts)$/;
  for (const { from, to } of imports()) {
    if (from.startsWith('src/client/')) assert.match(to, known, from);
    else if (from !== 'src/http/demo.ts') assert.doesNotMatch(to, /^src\/client\//, from);
    else if (to.startsWith('src/client/')) assert.equal(to, 'src/client/web/snippet.ts');
  }
});

test('the client library needs no package', () => {
  const files = readdirSync(join(root, 'src/client'), { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ts'))) {
    const text = readFileSync(join(root, 'src/client', file), 'utf8');
    assert.doesNotMatch(text, /from '[^.']|import\('|import '[^.]/, file);
  }
});

test('only the HTTP edge uses uWebSockets.js, and only the configuration reads the environment', () => {
  for (const { from } of imports()) {
    const text = readFileSync(join(root, from), 'utf8');
    if (!from.startsWith('src/http/')) assert.doesNotMatch(text, /from 'uWebSockets\.js'/, from);
    if (from !== 'src/config.ts') assert.doesNotMatch(text, /process\.env/, from);
  }
});
