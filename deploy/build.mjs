// Builds dist/: the compiled TypeScript and, beside it, the files that the code reads at run time.
// Plain JavaScript without dependencies, since it runs before anything is built.

import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const assetEndings = ['.lua', '.sql', '.html', '.css', '.svg'];
const assetFolders = ['src', 'workers', 'deploy', 'bench', 'test'];

const compiled = spawnSync(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', root], {
  stdio: 'inherit',
});
if (compiled.status !== 0) process.exit(compiled.status ?? 1);

for (const folder of assetFolders) {
  for (const entry of readdirSync(join(root, folder), { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !assetEndings.some((ending) => entry.name.endsWith(ending))) continue;
    const from = join(entry.parentPath ?? entry.path, entry.name);
    const to = join(root, 'dist', from.slice(root.length));
    mkdirSync(dirname(to), { recursive: true });
    cpSync(from, to);
  }
}
