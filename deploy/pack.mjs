// Makes the packages that users install, `sluice-client`, `sluice-server` and `sluice-micro`, as folders and as tarballs, in dist/packages,
// or in dist/packages-NAME with the argument NAME. Each contains what its entries import, for `import` and for `require`, with source maps and types; its
// programs; the library's page as README; and the licence. Prints the paths of the tarballs.

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { decode, encode } from '@jridgewell/sourcemap-codec';
import { build } from './build.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
// The folder is removed first, so no name may lead to another one.
const out = join(
  root,
  'dist',
  ['packages', ...process.argv.slice(2, 3).map((name) => basename(name))].join('-'),
);
const declarations = join(out, 'declarations');
const bundler = join(root, 'node_modules/.bin/esbuild');
const require = createRequire(import.meta.url);
const project = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

const packages = [
  {
    name: 'sluice-client',
    description: 'Records events on web pages and in apps, and sends them to Sluice',
    source: 'src/libraries/client',
    entries: ['index', 'react', 'react-native', 'ios', 'android'],
    keywords: ['analytics', 'events', 'tracking', 'react', 'react-native'],
    esbuild: ['--platform=browser', '--target=es2020', '--external:react'],
    more: {
      peerDependencies: { react: '>=17' },
      peerDependenciesMeta: { react: { optional: true } },
    },
  },
  {
    name: 'sluice-server',
    description: 'Sends events from a server to Sluice, and deletes users',
    source: 'src/libraries/producer',
    entries: ['index'],
    keywords: ['analytics', 'events', 'tracking', 'gdpr'],
    esbuild: ['--platform=node', '--target=node18'],
    programs: { 'sluice-import': 'src/import/main.ts' },
    // Only the program needs these. After an installation with --omit=optional the library works without them.
    optional: [
      'cli-progress',
      'csv-parse',
      'fzstd',
      'hyparquet',
      'hyparquet-compressors',
      'typebox',
      'xxhash-wasm',
      'yauzl',
    ],
    external: ['@aws-sdk/client-s3'],
    more: { engines: { node: '>=18' } },
  },
  {
    name: 'sluice-micro',
    description: 'A Sluice for test suites: checks what it is sent, stores nothing, and says what came',
    source: 'src/libraries/micro',
    entries: [],
    keywords: ['analytics', 'events', 'testing', 'ci'],
    programs: { 'sluice-micro': 'src/libraries/micro/main.ts' },
    assets: ['sdk.js', 'sdk.js.map'],
    external: ['uWebSockets.js'],
    more: {
      engines: project.engines,
      dependencies: { 'uWebSockets.js': project.dependencies['uWebSockets.js'] },
    },
  },
];

function pack(description) {
  const folder = join(out, description.name);
  mkdirSync(folder, { recursive: true });
  if (description.entries.length > 0) {
    bundle(description, folder);
    copyTypes(description, join(folder, 'cjs'));
    writeJson(join(folder, 'cjs/package.json'), { type: 'commonjs' });
    writeModules(description, join(folder, 'esm'));
    writePointers(description, folder);
  }
  writePrograms(description, join(folder, 'bin'));
  writeJson(join(folder, 'package.json'), manifestOf(description));
  cpSync(join(root, 'LICENSE'), join(folder, 'LICENSE'));
  const page = readFileSync(join(root, description.source, 'README.md'), 'utf8');
  writeFileSync(join(folder, 'README.md'), withoutLinksOut(page));
  const packed = run('npm', ['pack', '--silent', '--pack-destination', out], folder);
  return join(out, packed.trim().split('\n').at(-1));
}

/**
 * The code exists once, as CommonJS, and the ES modules only re-export it. So a program that uses both has one library, not two. esbuild
 * can split only ES modules, so shared parts are split first and then converted to CommonJS.
 */
function bundle({ source, entries, esbuild }, folder) {
  const files = entries.map((entry) => join(root, source, `${entry}.ts`));
  const parts = join(out, 'parts');
  const shape = ['--bundle', '--splitting', '--format=esm', '--sourcemap', '--log-level=warning'];
  run(bundler, [...files, ...shape, ...esbuild, '--chunk-names=shared-[hash]', `--outdir=${parts}`], root);
  const names = readdirSync(parts).filter((name) => name.endsWith('.js'));
  const format = ['--format=cjs', '--platform=node', '--minify', '--sourcemap', '--log-level=warning'];
  const targets = esbuild.filter((option) => option.startsWith('--target'));
  const target = join(folder, 'cjs');
  run(
    bundler,
    [...names.map((name) => join(parts, name)), ...format, ...targets, `--outdir=${target}`],
    root,
  );
  rmSync(parts, { recursive: true });
  for (const name of names) shortenMap(join(target, name));
}

/**
 * Reduces a file's source map to the positions where lines of a source begin, and the sources to their lines without comments, which is
 * enough for stack traces. A file that only has imports needs no map.
 */
function shortenMap(file) {
  const map = JSON.parse(readFileSync(`${file}.map`, 'utf8'));
  // Sources are named by their paths in the project.
  const sources = map.sources.map((path) => path.replace(/^.*\/src\//, 'src/'));
  if (!sources.some((path) => path.startsWith('src/'))) {
    rmSync(`${file}.map`);
    writeFileSync(file, readFileSync(file, 'utf8').replace(/\/\/# sourceMappingURL=.*\n/, ''));
    return;
  }
  const lines = decode(map.mappings).map((segments) =>
    segments
      .filter(([, source, line], at) => {
        const [, sourceBefore, lineBefore] = segments[at - 1] ?? [];
        return source !== sourceBefore || line !== lineBefore;
      })
      .map((segment) => segment.slice(0, 4)),
  );
  const sourcesContent = map.sourcesContent.map((text) => text.replace(/^ *(\/\/|\/\*\*|\* |\*\/).*$/gm, ''));
  const kept = { ...map, sources, sourcesContent, names: [], mappings: encode(lines) };
  writeFileSync(`${file}.map`, JSON.stringify(kept));
}

/** For packages that are CommonJS. */
const requiring =
  "--banner:js=import{createRequire as requireFrom}from'node:module';const require=requireFrom(import.meta.url);";

/** Each program is one file. Another file starts it, and reports a missing package. */
function writePrograms({ programs = {}, optional = [], external = [], assets = [] }, folder) {
  for (const [name, source] of Object.entries(programs)) {
    const externals = [...optional, ...external].map((dependency) => `--external:${dependency}`);
    const shape = ['--bundle', '--format=esm', '--platform=node', '--target=node20', '--minify', requiring];
    const file = join(folder, name.replace('sluice-', ''), 'main.js');
    run(
      bundler,
      [join(root, source), ...shape, ...externals, '--log-level=warning', `--outfile=${file}`],
      root,
    );
    writeFileSync(join(folder, `${name}.js`), programText(name), { mode: 0o755 });
    for (const asset of assets) cpSync(join(root, 'dist', asset), join(dirname(file), asset));
  }
}

function programText(name) {
  return `#!/usr/bin/env node
try {
  await import('./${name.replace('sluice-', '')}/main.js');
} catch (error) {
  if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
  process.stderr.write('${name}: a package is missing, since optional ones were not installed: ' + error.message + '\\n');
  process.exitCode = 1;
}
`;
}

/** Writes a module for each entry that exports its names, and its types. */
function writeModules({ source, entries }, folder) {
  mkdirSync(folder);
  for (const entry of entries) {
    const client = entry === 'react' ? "'use client';\n" : '';
    const names = Object.keys(require(join(folder, `../cjs/${entry}.js`)))
      .sort()
      .join(', ');
    writeFileSync(join(folder, `${entry}.js`), `${client}export { ${names} } from '../cjs/${entry}.js';\n`);
    writeFileSync(
      join(folder, `${entry}.d.ts`),
      `export * from '../cjs/types/${relative('src', source)}/${entry}.js';\n`,
    );
  }
}

/** Copies the declarations of the entries and of what they import. */
function copyTypes({ source, entries }, folder) {
  const waiting = entries.map((entry) => join(source, `${entry}.d.ts`));
  const seen = new Set(waiting);
  for (const name of waiting) {
    const target = join(folder, 'types', relative('src', name));
    mkdirSync(dirname(target), { recursive: true });
    // The build has those of the client library.
    const file = [declarations, join(root, 'dist')].map((each) => join(each, name)).find(existsSync);
    cpSync(file, target);
    for (const [, path] of readFileSync(file, 'utf8').matchAll(/(?:from |import\()'(\.[^']+)\.js'/g)) {
      const imported = `${join(dirname(name), path)}.d.ts`;
      if (!seen.has(imported)) waiting.push(imported);
      seen.add(imported);
    }
  }
}

function manifestOf({ name, description, entries, source, keywords, programs, optional = [], more }) {
  const types = (entry) => `./cjs/types/${relative('src', source)}/${entry}.d.ts`;
  const exported = entries.map((entry) => [
    entry === 'index' ? '.' : `./${entry}`,
    {
      import: { types: `./esm/${entry}.d.ts`, default: `./esm/${entry}.js` },
      require: { types: types(entry), default: `./cjs/${entry}.js` },
    },
  ]);
  return {
    name,
    version: project.version,
    description,
    license: project.license,
    keywords,
    // npm compares this with the provenance, so it has to be the repository where the workflow runs.
    ...(process.env.GITHUB_REPOSITORY && {
      repository: { type: 'git', url: `git+https://github.com/${process.env.GITHUB_REPOSITORY}.git` },
    }),
    type: 'module',
    ...(entries.length > 0 && {
      sideEffects: false,
      main: './cjs/index.js',
      module: './esm/index.js',
      types: types('index'),
    }),
    exports: { ...Object.fromEntries(exported), './package.json': './package.json' },
    files: [
      ...(entries.length > 0 ? ['esm', 'cjs'] : []),
      ...(programs ? ['bin'] : []),
      ...entries.filter((entry) => entry !== 'index'),
    ],
    ...(programs && {
      bin: Object.fromEntries(Object.keys(programs).map((program) => [program, `./bin/${program}.js`])),
    }),
    ...(optional.length > 0 && {
      optionalDependencies: Object.fromEntries(optional.map((each) => [each, versionOf(each)])),
    }),
    ...more,
  };
}

/** The version range of a dependency: the version in the project, and later ones compatible with it. */
function versionOf(dependency) {
  return `^${{ ...project.devDependencies, ...project.dependencies }[dependency]}`;
}

/** For tools that do not support `exports`: each further entry has a folder that says where it is. */
function writePointers({ source, entries }, folder) {
  for (const entry of entries.filter((name) => name !== 'index')) {
    mkdirSync(join(folder, entry));
    writeJson(join(folder, entry, 'package.json'), {
      main: `../cjs/${entry}.js`,
      module: `../esm/${entry}.js`,
      types: `../cjs/types/${relative('src', source)}/${entry}.d.ts`,
    });
  }
}

/** Links to other pages of the project become plain text, since the package does not contain them. */
function withoutLinksOut(page) {
  return page.replaceAll(/\[([^\]]+)\]\((?!https?:|#)[^)]+\)/g, '$1');
}

function writeJson(file, value) {
  writeFileSync(file, `${JSON.stringify(value, null, 2)}\n`);
}

function run(command, args, cwd) {
  const { status, stdout, error } = spawnSync(command, args, {
    cwd,
    stdio: ['ignore', 'pipe', 2],
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`${basename(command)} failed: ${error?.message ?? `status ${status}`}`);
  return stdout;
}

if (!(await build())) process.exit(1);
rmSync(out, { recursive: true, force: true });
const compiler = join(root, 'node_modules/typescript/bin/tsc');
run(process.execPath, [compiler, '-p', join(root, 'src/libraries/producer'), '--outDir', declarations], root);
for (const description of packages) process.stdout.write(`${relative(root, pack(description))}\n`);
rmSync(declarations, { recursive: true });
