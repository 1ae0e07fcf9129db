// Bundles each program with all our modules that it imports into one file, which replaces the compiler's output: loading a few hundred
// files took half of a start. Packages, and the bundles that the build makes of them, remain separate files. Called by build.mjs; `node
// deploy/bundle-programs.mjs DIST` does it in a copy of dist/ whose compiled files were changed.

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const dist = resolve(process.argv[2] ?? join(root, 'dist'));
/** No program, but two hundred files that most test processes would load. */
const administration = 'test/harness/administration';
const programs = [
  'src/main',
  'src/migrate',
  'src/admin/main',
  'workers/main',
  // Not in an image, which uses a separate server.
  'deploy/local/clickhouse/main',
  administration,
].filter((program) => existsSync(join(root, `${program}.ts`)));
/** Compiled files that are bundles themselves. */
const isBundle = /\/src\/(packages\/[^/]+|contract\/typebox)\.js$/;

for (const program of programs) {
  const source = join(root, `${program}.ts`);
  const outfile = join(dist, `${program}.js`);
  const fromOutfile = (file) => {
    const path = relative(dirname(outfile), file);
    return path.startsWith('.') ? path : `./${path}`;
  };
  await build({
    // The compiler's output of a program may be an earlier bundle, so for this one file the source is used.
    entryPoints: [source],
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
    // Without `keepNames`, which calls Object.defineProperty for every closure when it is made: with it the API takes 26 to 29 µs
    // of CPU for a single event, without it 20 to 24 (three alternating pairs of `npm run bench -- all --only single`).
    sourcemap: true,
    logLevel: 'warning',
    plugins: [
      {
        name: 'compiled files',
        setup({ onResolve, onLoad }) {
          onResolve({ filter: /^\./ }, ({ path, importer, resolveDir }) => {
            const file = join(importer === source ? join(dist, dirname(program)) : resolveDir, path);
            // Tests load the metrics too, and a process can register each only once.
            const isShared = program === administration && file.endsWith('/src/metrics.js');
            const external = isBundle.test(file) || isShared;
            return external ? { path: fromOutfile(file), external } : { path: file };
          });
          // A module that reads files beside itself must look for them beside its own source.
          onLoad({ filter: /\.[jt]s$/ }, ({ path }) => {
            const file = path === source ? outfile : path;
            const place = `new URL(${JSON.stringify(fromOutfile(file))}, import.meta.url).href`;
            const contents = readFileSync(path, 'utf8').replaceAll('import.meta.url', () => place);
            return { contents, loader: path === source ? 'ts' : 'js' };
          });
        },
      },
    ],
  });
}
