// Builds dist/: the compiled TypeScript and, beside it, the files that the code reads at run time. Does
// nothing when nothing changed since the last build. Everything it prints goes to stderr, so that commands
// which build first keep their stdout.
// Plain JavaScript without dependencies, since it runs before anything is built.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const dist = join(root, 'dist');
const stampFile = join(dist, '.build-stamp');
const folders = ['src', 'workers', 'deploy', 'bench', 'test'];
const assetEndings = ['.lua', '.sql', '.html', '.css', '.js', '.svg'];
const settings = ['tsconfig.json', 'src/client/tsconfig.json', 'package-lock.json', 'deploy/build.mjs'];
/** The client library for browsers, bundled: for pages, and as the demo's phone has it. */
const bundles = [
  {
    entry: 'src/client/web/script.ts',
    file: 'sdk.js',
    options: ['--format=iife', '--target=es2020'],
  },
  { entry: 'src/client/ios.ts', file: 'sluice-ios.js', options: ['--format=esm', '--target=es2020'] },
];

/** Whether dist/ is what the sources make now. */
export function isBuilt() {
  const sources = listSources();
  return (
    existsSync(stampFile) &&
    readFileSync(stampFile, 'utf8') === fingerprint(sources) &&
    sources.every((source) => existsSync(join(dist, outputOf(source)))) &&
    bundles.every(({ file }) => existsSync(join(dist, file)))
  );
}

/** Brings dist/ up to date; false when the compiler found errors, which it has printed then. */
export function build() {
  if (isBuilt()) return true;
  const sources = listSources();
  const stamp = fingerprint(sources);
  rmSync(stampFile, { force: true });
  removeOrphans(new Set(sources.map(outputOf)));
  // The compiler's own record trusts that its outputs are still there.
  if (sources.some((source) => !existsSync(join(dist, outputOf(source))))) {
    rmSync(join(dist, '.tsbuildinfo'), { force: true });
  }
  if (!compile(root)) return false;
  // The client library once more, for its types: against the language of the browsers it is for, without Node's.
  if (!compile(join(root, 'src/client'))) return false;
  if (!bundles.every(bundle)) return false;
  for (const source of sources.filter((name) => outputOf(name) === name)) {
    mkdirSync(dirname(join(dist, source)), { recursive: true });
    cpSync(join(root, source), join(dist, source));
  }
  writeFileSync(stampFile, stamp);
  return true;
}

function compile(project) {
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  return spawnSync(process.execPath, [compiler, '-p', project], { stdio: ['ignore', 2, 2] }).status === 0;
}

/**
 * Makes one file of an entry and all that it imports: terser makes it a tenth smaller than esbuild does, and a further
 * hundredth when esbuild has shortened the syntax first.
 */
function bundle({ entry, file, options }) {
  const out = join(dist, file);
  const map = `content='${out}.map',filename='${file}',url='${file}.map',includeSources`;
  return (
    run('esbuild', [
      join(root, entry),
      '--bundle',
      '--minify-syntax',
      '--sourcemap',
      '--log-level=warning',
      ...options,
      `--outfile=${out}`,
    ]) &&
    run('terser', [
      out,
      '--ecma',
      '2020',
      '--compress',
      'passes=3,unsafe_arrows,lhs_constants=false',
      '--mangle',
      '--source-map',
      map,
      '--output',
      out,
    ])
  );
}

function run(tool, args) {
  const { status } = spawnSync(join(root, 'node_modules/.bin', tool), args, { stdio: ['ignore', 2, 2] });
  return status === 0;
}

function listSources() {
  return folders
    .flatMap((folder) => listFiles(join(root, folder)))
    .filter((name) => name.endsWith('.ts') || assetEndings.some((ending) => name.endsWith(ending)))
    .map((name) => relative(root, name))
    .sort();
}

function listFiles(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

/** Where in dist/ the compiled file or the copy of a source is. */
function outputOf(source) {
  return source.endsWith('.ts') ? source.replace(/\.ts$/, '.js') : source;
}

function fingerprint(sources) {
  const hash = createHash('sha256');
  for (const name of [...settings, ...sources]) {
    const { size, mtimeMs } = statSync(join(root, name));
    hash.update(`${name} ${size} ${mtimeMs}\n`);
  }
  return hash.digest('hex');
}

/** Removes what the compiler made of sources that are gone: such a file would still be imported. */
function removeOrphans(outputs) {
  for (const file of folders.flatMap((folder) => listFiles(join(dist, folder)))) {
    const name = relative(dist, file).replace(/\.(js\.map|d\.ts)$/, '.js');
    if (!outputs.has(name)) rmSync(file);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exit(build() ? 0 : 1);
