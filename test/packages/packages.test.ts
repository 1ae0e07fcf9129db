// The packages as producers get them: made by `npm run pack`, installed from their tarballs in an empty folder, and used.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { after, before, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { resolve as resolveByMetro } from 'metro-resolver';
import { publint } from 'publint';
import { parse } from 'yaml';
import { launchBrowser, withoutBrowser } from '../harness/browser.js';
import { bodyServer, listen } from '../harness/listen.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { test } from '../support/test.js';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
const names = ['sluice-client', 'sluice-server'] as const;
const installedBytesMax = 400_000;

let folder: string;
let tarballs: string[];

before(() => {
  const packed = execFileSync(process.execPath, [join(root, 'deploy/pack.mjs')], {
    cwd: root,
    encoding: 'utf8',
    env: { ...process.env, GITHUB_REPOSITORY: 'example/sluice' },
  });
  tarballs = packed
    .trim()
    .split('\n')
    // `sluice-micro` needs the front's binaries, and has its own test.
    .filter((path) => !path.includes('sluice-micro'))
    .map((path) => join(root, path));
  folder = tempDir('packages');
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}');
  install(folder, ...tarballs);
  // Links packages that users of the libraries already have.
  for (const name of [
    'react',
    'react-dom',
    'scheduler',
    'csstype',
    'undici-types',
    '@types/node',
    '@types/react',
  ]) {
    link(name);
  }
});
after(() => removeTempDir(folder));

test('the workflow publishes with provenance and without a token, from the repository that the packages name', () => {
  for (const name of names) {
    const { repository } = JSON.parse(
      readFileSync(join(folder, 'node_modules', name, 'package.json'), 'utf8'),
    ) as { repository: { url: string } };
    assert.equal(repository.url, 'git+https://github.com/example/sluice.git');
  }
  const workflow = parse(readFileSync(join(root, '.github/workflows/publish.yml'), 'utf8')) as {
    permissions: Record<string, string>;
    jobs: { publish: { steps: { run?: string }[] } };
  };
  assert.deepEqual(workflow.permissions, { contents: 'read', 'id-token': 'write' });
  const runs = workflow.jobs.publish.steps.map(({ run = '' }) => run).join('\n');
  assert.match(runs, /npm publish .* --provenance --access public/);
  assert.doesNotMatch(JSON.stringify(workflow), /secrets\.|registry/);
});

/** npm removes from the folder what it did not install, also behind links. So nothing is linked before the last install. */
function install(into: string, ...args: string[]): void {
  const options = [
    '--offline',
    '--no-audit',
    '--no-fund',
    '--legacy-peer-deps',
    '--omit=optional',
    '--silent',
  ];
  execFileSync('npm', ['install', ...options, ...args], {
    cwd: into,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}

function link(name: string): void {
  const target = join(folder, 'node_modules', name);
  mkdirSync(dirname(target), { recursive: true });
  symlinkSync(join(root, 'node_modules', name), target);
}

function write(name: string, text: string): string {
  const file = join(folder, name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
}

function run(file: string): string {
  const { status, stdout, stderr } = spawnSync(process.execPath, [file], { cwd: folder, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  assert.equal(stderr, '');
  return stdout.trim();
}

for (const [index, name] of names.entries()) {
  describe(name, () => {
    test('is small, has its licence, page, types and source maps, and adds no dependency to the library', () => {
      const installed = join(folder, 'node_modules', name);
      const files = readdirSync(installed, { recursive: true, encoding: 'utf8' });
      const bytes = files.map((file) => statSync(join(installed, file))).filter((stat) => stat.isFile());
      assert.ok(bytes.reduce((sum, { size }) => sum + size, 0) < installedBytesMax);
      const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'));
      const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
      assert.deepEqual([manifest.name, manifest.version, manifest.dependencies], [name, version, undefined]);
      for (const file of ['LICENSE', 'README.md', 'esm/index.js', 'esm/index.d.ts']) {
        assert.ok(files.includes(file), file);
      }
      const maps = files.filter((path) => path.endsWith('.js.map'));
      assert.ok(maps.length > 0);
      for (const file of maps) {
        const map = JSON.parse(readFileSync(join(installed, file), 'utf8'));
        assert.equal(map.sources.length, map.sourcesContent.length);
        assert.ok(
          map.sources.every((source: string) => /^src\/[\w/-]+\.ts$/.test(source)),
          map.sources.join(),
        );
      }
      const page = readFileSync(join(installed, 'README.md'), 'utf8');
      assert.doesNotMatch(page, /\]\((?!https?:|#)/, 'no link leads out of the package');
    });

    test('publint finds nothing', async () => {
      const { messages } = await publint({
        pkgDir: join(folder, 'node_modules', name),
        strict: true,
        level: 'warning',
      });
      assert.deepEqual(messages, []);
    });

    test('its types are right however it is resolved', async () => {
      const data = new Uint8Array(readFileSync(tarballs[index] as string));
      const { types, problems } = (await checkPackage(createPackageFromTarballData(data))) as {
        types: unknown;
        problems: readonly unknown[];
      };
      assert.ok(types);
      assert.deepEqual(problems, []);
    });
  });
}

describe('used', () => {
  const program = `import { sluice, snippet, type LoadOptions } from 'sluice-client';
import { SluiceProvider, useSluice } from 'sluice-client/react';
import { sluice as phone } from 'sluice-client/react-native';
import { sluice as ios } from 'sluice-client/ios';
import { sluice as android } from 'sluice-client/android';
import { createSluice, type Refusal, type TrackedEvent } from 'sluice-server';
interface Order { amount: number; note?: string }
const order: Order = { amount: 1 };
const options: LoadOptions = { baseUrl: 'https://events.example.com' };
sluice.load('1', options);
sluice.track('Order', { ...order });
phone.track('Order', { amount: 1 });
ios.setAppId('1');
android.optOut();
const text: string = snippet({ appId: '1', ...options });
const server = createSluice({ appId: '1', baseUrl: text, onRefused: (refusal: Refusal) => refusal.code });
server.track({ event: 'Order', identity: 1, properties: { amount: 1 } });
server.track<Order>({ event: 'Order', userId: '7', properties: order });
// @ts-expect-error There is exactly one user.
server.track({ event: 'Order', identity: 'a', userId: '7' });
const event = { event: 'Order', identity: 'a' };
server.track(event);
server.track({ ...event, properties: { at: new Date(), id: 7n, tags: ['a', 1], note: undefined } });
const kept: TrackedEvent = { ...event, properties: { amount: 1 } };
server.track(kept);
server.addUserProperties({ identity: 'a', properties: { plan: 'pro', seats: 3 } });
// What a strict environment refuses does not compile.
// @ts-expect-error A boolean.
server.track({ ...event, properties: { vip: true } });
// @ts-expect-error An object.
server.track({ ...event, properties: { address: { city: 'London' } } });
// @ts-expect-error Null.
server.track({ ...event, properties: { coupon: null } });
// @ts-expect-error A boolean in a list.
server.track({ ...event, properties: { flags: [true] } });
// @ts-expect-error A reserved key.
server.track({ ...event, properties: { session_id: 's' } });
// @ts-expect-error A field that an event does not have.
server.track({ event: 'Order', identity: 'a', propertys: {} });
interface Person { vip: boolean }
const person: Person = { vip: true };
// @ts-expect-error A boolean of an interface.
server.track<Person>({ ...event, properties: person });
// @ts-expect-error A list of a user.
server.addUserProperties({ identity: 'a', properties: { tags: ['a'] } });
const lenient = createSluice({ appId: '1', baseUrl: text, validation: 'lenient' });
lenient.track({ ...event, properties: { vip: true, address: { city: 'London' }, coupon: null, flags: [true] } });
lenient.track({ ...event, properties: person });
lenient.addUserProperties({ identity: 'a', properties: { tags: ['a'], vip: true } });
export const all = [SluiceProvider, useSluice];
`;

  for (const [module, moduleResolution, files] of [
    ['ESNext', 'bundler', ['index.ts']],
    ['Node16', 'node16', ['index.mts', 'index.cts']],
    ['NodeNext', 'nodenext', ['index.mts', 'index.cts']],
  ] as const) {
    test(`by TypeScript under ${moduleResolution}`, () => {
      for (const file of files) write(`${moduleResolution}/${file}`, program);
      const compilerOptions = {
        module,
        moduleResolution,
        target: 'ES2022',
        lib: ['ES2022', 'DOM'],
        types: ['node'],
        strict: true,
        noEmit: true,
        verbatimModuleSyntax: false,
      };
      const config = write(`${moduleResolution}/tsconfig.json`, JSON.stringify({ compilerOptions, files }));
      const compiler = join(root, 'node_modules/typescript/bin/tsc');
      const { status, stdout } = spawnSync(process.execPath, [compiler, '-p', config], { encoding: 'utf8' });
      assert.equal(status, 0, stdout);
    });
  }

  test('by require and by import, which load the same library', () => {
    const file = write(
      'both.mjs',
      `import { createRequire } from 'node:module';
import { sluice } from 'sluice-client';
import { createSluice } from 'sluice-server';
const require = createRequire(import.meta.url);
console.log(require('sluice-client').sluice === sluice, require('sluice-server').createSluice === createSluice);`,
    );
    assert.equal(run(file), 'true true');
  });

  test('on a server that renders: importing touches nothing, and the provider renders its children', () => {
    const file = write(
      'render.mjs',
      `const before = Object.getOwnPropertyNames(globalThis).join();
const timers = globalThis.setTimeout;
globalThis.setTimeout = () => { throw new Error('a timer'); };
const { SluiceProvider, useSluice } = await import('sluice-client/react');
await import('sluice-client');
await import('sluice-client/react-native');
globalThis.setTimeout = timers;
if (Object.getOwnPropertyNames(globalThis).join() !== before) throw new Error('it left something');
const { createElement } = await import('react');
const { renderToString } = await import('react-dom/server');
const Child = () => createElement('p', null, typeof useSluice().track);
console.log(renderToString(createElement(SluiceProvider, { appId: '1', baseUrl: 'https://e.example' }, createElement(Child))));`,
    );
    assert.equal(run(file), '<p>function</p>');
  });

  describe('its importer', () => {
    const bin = () => join(folder, 'node_modules/.bin/sluice-import');
    const imports = (...args: string[]) => spawnSync(bin(), args, { cwd: folder, encoding: 'utf8' });

    test('says which package is missing where the optional ones were left out', () => {
      const { status, stderr } = imports('--help');
      assert.equal(status, 1);
      assert.match(stderr, /^sluice-import: a package is missing.* '[\w-]+'.*\n$/);
    });

    test('reads files of all formats', () => {
      for (const name of Object.keys(optionalDependencies())) link(name);
      const help = imports('--help');
      assert.match(help.stdout, /^sluice-import FILE… --app-id APP_ID/);
      write('rows.csv', 'who,when\nada,2026-01-01T12:00:00\n');
      write('rows.ndjson', '{"who":"bob","when":"2026-07-01T12:00:00"}\n');
      const { status, stdout, stderr } = imports(
        ...['rows.csv', 'rows.ndjson', '--app-id', '1', '--event', 'Seen', '--identity', 'who'],
        ...['--timestamp', 'when', '--time-zone', 'Europe/Berlin', '--dry-run'],
      );
      assert.equal(status, 0, stderr);
      const records = stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { identity: string; timestamp: string });
      assert.deepEqual(
        records.map(({ identity, timestamp }) => [identity, timestamp]),
        [
          ['ada', '2026-01-01T11:00:00.000Z'],
          ['bob', '2026-07-01T10:00:00.000Z'],
        ],
      );
    });

    function optionalDependencies(): Record<string, string> {
      const manifest = join(folder, 'node_modules/sluice-server/package.json');
      return JSON.parse(readFileSync(manifest, 'utf8')).optionalDependencies;
    }
  });

  test('by a React page that Vite built, in a browser', { skip: withoutBrowser() }, async (context) => {
    const site = join(folder, 'site');
    write(
      'site/index.html',
      '<title>A page</title><div id="root"></div><script type="module" src="/main.js"></script>',
    );
    write(
      'site/main.js',
      `import { createElement, useEffect } from 'react';
import { createRoot } from 'react-dom/client';
import { SluiceProvider, useSluice } from 'sluice-client/react';
function Child() {
  const sluice = useSluice();
  useEffect(() => sluice.track('Shown', { by: 'hook' }), []);
  return null;
}
const options = { appId: '1', baseUrl: location.origin, intervalMs: 50 };
createRoot(document.getElementById('root')).render(createElement(SluiceProvider, options, createElement(Child)));`,
    );
    const { build } = await import('vite');
    await build({ root: site, logLevel: 'error', configFile: false });
    const events: string[] = [];
    const server = bodyServer((request, reply, body) => {
      if (request.url === '/api/collect') {
        const { messages } = JSON.parse(body.toString()) as { messages: { id: string; event: string }[] };
        events.push(...messages.map(({ event }) => event));
        const answers = messages.map(({ id }) => ({ id, status: 'stored' }));
        return reply.end(JSON.stringify({ messages: answers }));
      }
      const file = join(site, 'dist', request.url === '/' ? 'index.html' : String(request.url));
      const type = file.endsWith('.js') ? 'text/javascript' : 'text/html';
      if (existsSync(file)) reply.writeHead(200, { 'content-type': type }).end(readFileSync(file));
      else reply.writeHead(404).end();
    });
    const { url, stop } = await listen(server);
    const browser = await launchBrowser();
    context.after(async () => {
      await browser.close();
      stop();
    });
    const page = await browser.newPage();
    page.setDefaultTimeout(60_000);
    await page.goto(url);
    await until(() => events.length >= 2, 'the events arrived');
    assert.deepEqual(events.sort(), ['Page View', 'Shown']);
  });

  for (const withExports of [true, false]) {
    test(`as Metro resolves it, ${withExports ? 'by exports' : 'without knowing exports'}, from a file: install`, () => {
      const app = tempDir('app');
      writeFileSync(join(app, 'package.json'), '{"private":true}');
      install(app, `file:${join(root, 'dist/packages/sluice-client')}`);
      for (const [specifier, ending] of [
        ['sluice-client', '/index.js'],
        ['sluice-client/react-native', '/react-native.js'],
      ] as const) {
        const found = resolveAsMetro(app, specifier, withExports);
        assert.ok(found.endsWith(ending) && existsSync(found), found);
      }
      const { sluice } = createRequire(join(app, 'app.js'))('sluice-client/react-native') as {
        sluice: { track: unknown };
      };
      assert.equal(typeof sluice.track, 'function');
    });
  }

  function resolveAsMetro(app: string, specifier: string, withExports: boolean): string {
    const manifestAt = (path: string) =>
      existsSync(path)
        ? { packageJson: JSON.parse(readFileSync(path, 'utf8')), rootPath: dirname(path) }
        : null;
    const closest = (path: string) => {
      for (let at = path; at !== '/'; at = dirname(at)) {
        const found = manifestAt(join(at, 'package.json'));
        if (found !== null) return { ...found, packageRelativePath: path.slice(at.length + 1) };
      }
      return null;
    };
    const context = {
      allowHaste: false,
      assetExts: new Set<string>(),
      customResolverOptions: {},
      disableHierarchicalLookup: false,
      doesFileExist: (path: string) => existsSync(path) && statSync(path).isFile(),
      extraNodeModules: null,
      fileSystemLookup: (path: string) => {
        if (!existsSync(path)) return { exists: false };
        return { exists: true, type: statSync(path).isFile() ? 'f' : 'd', realPath: path };
      },
      getPackage: (path: string) => manifestAt(path)?.packageJson ?? null,
      getPackageForModule: closest,
      isESMImport: true,
      mainFields: ['react-native', 'browser', 'main'],
      nodeModulesPaths: [],
      originModulePath: join(app, 'app.js'),
      preferNativePlatform: true,
      redirectModulePath: (path: string) => path,
      resolveAsset: () => null,
      resolveHasteModule: () => null,
      resolveHastePackage: () => null,
      sourceExts: ['js', 'json'],
      unstable_conditionNames: ['react-native'],
      unstable_conditionsByPlatform: {},
      unstable_enablePackageExports: withExports,
      unstable_incrementalResolution: false,
      unstable_logWarning: (warning: string) => assert.fail(warning),
    };
    const found = resolveByMetro(context as never, specifier, 'ios') as { filePath?: string };
    return String(found.filePath);
  }
});
