// Builds dist/: the compiled TypeScript, and the files that the code reads at run time. Does nothing if nothing changed since the last
// build. It prints only to stderr, so that commands that build first keep their stdout clean. Plain JavaScript without dependencies, since
// it runs before anything is built.

import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const dist = join(root, 'dist');
const stampFile = join(dist, '.build-stamp');
const minified = join(root, 'node_modules/.cache/sluice/minified');
const folders = ['src', 'workers', 'deploy', 'bench', 'test'];
const assetEndings = ['.lua', '.sql', '.html', '.css', '.js', '.svg'];
/** The documentation that the console's server serves, with the folders of its pages. */
const docs = { from: ['src', 'deploy'], to: 'src/console/docs' };
const settings = [
  'tsconfig.json',
  'src/libraries/client/tsconfig.json',
  'src/console/tsconfig.json',
  'package.json',
  'package-lock.json',
  'deploy/build.mjs',
  'deploy/bundle-programs.mjs',
];
const ofConsole = [
  '--format=esm',
  '--target=es2022',
  '--jsx=automatic',
  '--jsx-import-source=preact',
  // The build of the parser of lists that contains for browsers what Node already has.
  '--alias:csv-parse/sync=csv-parse/browser/esm/sync',
];
/** Files that are each bundled from an entry and everything that it imports. */
const bundles = [
  // The client library for pages.
  {
    entry: 'src/libraries/client/web/script.ts',
    file: 'sdk.js',
    options: ['--format=iife', '--target=es2020'],
  },
  { entry: 'src/console/demo/demo.tsx', file: 'src/console/demo/demo.js', options: ofConsole },
];
/** The console, for the browsers of administrators. What its first page does not need is in separate files, which it loads later. */
const consoleBundle = { entry: 'src/console/main.tsx', file: 'src/console/console.js', options: ofConsole };
/** The styles of the console with the Event Visualizer, of the demo, and of the documentation. */
const styles = ['console.css', 'demo.css', 'docs.css'].map((name) => `src/console/styles/${name}`);
/** The types and routes of the library's clients are generated from the service's OpenAPI documents. */
const clients = { entry: 'deploy/client-operations.ts', folder: 'src/libraries/producer' };
/** It replaces the compiler's output, so that it loads fast. */
const typebox = { entry: 'src/contract/typebox.ts', file: 'src/contract/typebox.js' };
/** The viewer of the console's API page is already minified, and is too much for terser. */
const viewer = { entry: 'src/console/reference/frame.ts', file: 'src/console/reference.js' };
/**
 * What the processes use of packages: one file for each, instead of the compiler's output, and one more for the code that they share.
 * Loaded file by file, these packages took two thirds of a worker's start.
 */
const packages = 'src/packages';

/** Whether dist/ is up to date with the sources. */
export function isBuilt() {
  const sources = listSources();
  return (
    existsSync(stampFile) &&
    readFileSync(stampFile, 'utf8') === fingerprint(sources) &&
    sources.every((source) => isBundled(source) || existsSync(join(dist, outputOf(source)))) &&
    [...bundles, consoleBundle, typebox, viewer].every(({ file }) => existsSync(join(dist, file))) &&
    styles.every((file) => existsSync(join(dist, file)))
  );
}

/** Brings dist/ up to date. Settles with false if the compiler found errors; it has printed them. */
export async function build() {
  if (isBuilt()) return true;
  rmSync(stampFile, { force: true });
  // First, since steps below load code that reads these files.
  for (const source of listSources().filter((name) => !isBundled(name) && !/\.tsx?$/.test(name))) {
    const to = join(dist, outputOf(source));
    mkdirSync(dirname(to), { recursive: true });
    cpSync(join(root, source), to);
  }
  if (!(await writeClients())) return false;
  const sources = listSources();
  const stamp = fingerprint(sources);
  removeOrphans(new Set(sources.map(outputOf)));
  // The compiler's own record of what is up to date assumes that its outputs still exist.
  if (sources.some((source) => !isBundled(source) && !existsSync(join(dist, outputOf(source))))) {
    rmSync(join(dist, '.tsbuildinfo'), { force: true });
  }
  const compiled = compile(root).then(async (isDone) => isDone && (await replaceOutputs(sources)));
  const steps = [
    compiled,
    // Compiles the client library a second time, with the language level of its browsers and without Node's types.
    compile(join(root, 'src/libraries/client')),
    // The console is checked against a browser's types; only its bundle is used.
    compile(join(root, 'src/console')),
    ...bundles.map(bundle),
    compiled.then(async (isDone) => isDone && (await bundleConsole())),
    bundleStyles(),
    bundleViewer(),
  ];
  if (!(await Promise.all(steps)).every(Boolean)) return false;
  writeFileSync(stampFile, stamp);
  return true;
}

/** Writes the generated sources of the library's clients, from the routes' documents, before the library is compiled. */
async function writeClients() {
  const module = join(dist, '.client-operations.mjs');
  // The folder of the scripts that the routes' modules read.
  const place = pathToFileURL(join(dist, 'src/redis/scripts.js'));
  const options = ['--packages=external', '--platform=node', '--format=esm'];
  const define = `--define:import.meta.url="${place}"`;
  if (!(await esbuild([clients.entry], ...options, define, `--outfile=${module}`))) return false;
  const print = `import('${pathToFileURL(module)}').then((it) => console.log(JSON.stringify(it.writtenSources())))`;
  try {
    const sources = JSON.parse(execFileSync(process.execPath, ['-e', print], { encoding: 'utf8' }));
    for (const [name, source] of Object.entries(sources)) {
      const path = join(root, clients.folder, name);
      const format = [join(root, 'node_modules/.bin/biome'), ['format', `--stdin-file-path=${path}`]];
      const text = execFileSync(...format, { cwd: root, input: source, encoding: 'utf8' });
      if (!existsSync(path) || readFileSync(path, 'utf8') !== text) writeFileSync(path, text);
    }
    return true;
  } catch {
    // The programs have printed why.
    return false;
  }
}

function compile(project) {
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  return succeeds(process.execPath, [compiler, '-p', project]);
}

/** Replaces the compiler's output by bundles: first of the packages, then of the programs, which import them. */
async function replaceOutputs(sources) {
  const made = await Promise.all([bundleTypebox(), bundlePackages(sources)]);
  return made.every(Boolean) && (await bundlePrograms());
}

/** Bundles an entry and all its imports into one file, as small as possible. */
async function bundle({ entry, file, options }) {
  const shortened = join(dist, dirname(file), `.${basename(file)}`);
  if (!(await esbuild([entry], ...small, ...options, `--outfile=${shortened}`))) return false;
  await minify(shortened, join(dist, file), options);
  return true;
}

/**
 * terser makes a bundle a tenth smaller than esbuild does, and another hundredth smaller if esbuild has already shortened the syntax. It
 * takes seconds of CPU, so its results are cached by the hash of its input.
 */
async function minify(from, to, options) {
  const name = basename(to);
  const inputs = [from, `${from}.map`, ...settings.map((setting) => join(root, setting))];
  const hash = createHash('sha256');
  for (const input of inputs) hash.update(readFileSync(input)).update('\0');
  const kept = join(minified, hash.digest('hex'));
  if (!existsSync(kept)) {
    // Loaded here, since the packages may be installed only after this file is loaded. In this process, which compiles it once for all
    // bundles, it takes half of the CPU that a process for each takes.
    const { minify: shorten } = await import('terser');
    const { code, map } = await shorten(readFileSync(from, 'utf8'), {
      ecma: 2020,
      // As a module, so that its top-level names are its own.
      module: options.includes('--format=esm'),
      compress: { passes: 3, unsafe_arrows: true, lhs_constants: false },
      sourceMap: {
        content: readFileSync(`${from}.map`, 'utf8'),
        filename: name,
        url: `${name}.map`,
        includeSources: true,
      },
    });
    const out = join(`${kept}.${process.pid}`, name);
    mkdirSync(dirname(out), { recursive: true });
    writeFileSync(out, code);
    writeFileSync(`${out}.map`, map);
    rmSync(kept, { recursive: true, force: true });
    renameSync(dirname(out), kept);
  }
  mkdirSync(dirname(to), { recursive: true });
  for (const made of [name, `${name}.map`]) cpSync(join(kept, made), join(dirname(to), made));
}

/** Includes what the console has to know about the administration's commands, taken from their definitions (src/console/commands.ts). */
async function bundleConsole() {
  const { entry, file, options } = consoleBundle;
  const module = pathToFileURL(join(dist, 'src/admin/commands.js'));
  const print = `import('${module}').then(({ forConsole }) => console.log(JSON.stringify(forConsole)))`;
  const table = execFileSync(process.execPath, ['-e', print], { encoding: 'utf8' }).trim();
  const folder = dirname(join(dist, file));
  const parts = join(folder, '.parts');
  rmSync(parts, { recursive: true, force: true });
  const names = ['--entry-names=console', '--chunk-names=console-[hash]', `--outdir=${parts}`];
  const define = `--define:administration=${table}`;
  if (!(await esbuild([entry], '--splitting', ...small, ...options, define, ...names))) return false;
  const made = readdirSync(parts).filter((name) => name.endsWith('.js'));
  for (const name of made) await minify(join(parts, name), join(folder, name), options);
  return true;
}

function bundleTypebox() {
  const options = ['--format=esm', '--target=node20', '--keep-names', '--minify', '--allow-overwrite'];
  return esbuild([typebox.entry], ...options, `--outfile=${join(dist, typebox.file)}`);
}

function bundleStyles() {
  return esbuild(styles, '--minify', `--outdir=${join(dist, dirname(styles[0]))}`);
}

async function bundleViewer() {
  const out = join(dist, viewer.file);
  const options = ['--format=iife', '--target=es2022', '--minify', '--legal-comments=eof'];
  // It warns about a worker that the viewer starts only elsewhere.
  if (!(await esbuild([viewer.entry], ...options, '--log-level=error', `--outfile=${out}`))) return false;
  // A picture of the viewer's makers, from their server: the policy of the frame would refuse it, and report that at every load.
  const picture = /https:\/\/cdn\.redoc\.ly\/redoc\/logo-mini(-full)?\.svg/g;
  writeFileSync(out, readFileSync(out, 'utf8').replaceAll(picture, 'data:,'));
  return true;
}

/** Packages written as CommonJS call `require` for Node's own modules. */
const withRequire =
  "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";

function bundlePackages(sources) {
  const entries = sources.filter((source) => source.startsWith(`${packages}/`));
  const shape = ['--splitting', '--format=esm', '--platform=node', '--target=node20', '--keep-names'];
  return esbuild(
    entries,
    ...shape,
    '--minify-syntax',
    '--minify-whitespace',
    // A native module finds its binary relative to its own files.
    '--external:msgpackr-extract',
    `--banner:js=${withRequire}`,
    `--outdir=${join(dist, packages)}`,
  );
}

function bundlePrograms() {
  return succeeds(process.execPath, [join(root, 'deploy/bundle-programs.mjs')]);
}

/** Options of bundles that terser makes smaller. */
const small = ['--minify-syntax', '--sourcemap'];

/** Bundles each of these sources with what it imports. */
function esbuild(entries, ...options) {
  const sources = entries.map((entry) => join(root, entry));
  const program = join(root, 'node_modules/.bin/esbuild');
  return succeeds(program, [...sources, '--bundle', '--log-level=warning', ...options]);
}

function succeeds(command, args) {
  return new Promise((settle) => {
    const child = spawn(command, args, { stdio: ['ignore', 2, 2] });
    child.once('error', () => settle(false));
    child.once('exit', (code) => settle(code === 0));
  });
}

function listSources() {
  return folders
    .flatMap((folder) => listFiles(join(root, folder)))
    .filter((name) => /\.tsx?$/.test(name) || assetEndings.some((ending) => name.endsWith(ending)))
    .map((name) => relative(root, name))
    .concat(docs.from.flatMap((folder) => listPages(folder)))
    .sort();
}

function listPages(folder) {
  const files = listFiles(join(root, folder)).filter((name) => name.endsWith('.md'));
  return files.map((name) => relative(root, name));
}

function listFiles(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

/** Whether a source appears only in a bundle. */
function isBundled(source) {
  return source.startsWith('src/console/') && !/\.(html|svg|md)$/.test(source);
}

/** The path in dist/ of the compiled file or the copy of a source. */
function outputOf(source) {
  if (source.endsWith('.md')) return join(docs.to, source);
  return source.endsWith('.ts') ? source.replace(/\.ts$/, '.js') : source;
}

function fingerprint(sources) {
  const hash = createHash('sha256');
  // The format of generated sources. An image is built without it.
  const format = ['biome.json'].filter((name) => existsSync(join(root, name)));
  for (const name of [...settings, ...format, ...sources]) {
    const { size, mtimeMs } = statSync(join(root, name));
    hash.update(`${name} ${size} ${mtimeMs}\n`);
  }
  return hash.digest('hex');
}

/** Removes the compiled files of sources that no longer exist, since they could still be imported. */
function removeOrphans(outputs) {
  for (const file of folders.flatMap((folder) => listFiles(join(dist, folder)))) {
    const name = relative(dist, file).replace(/\.(js\.map|d\.ts)$/, '.js');
    if (!outputs.has(name)) rmSync(file);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exit((await build()) ? 0 : 1);
