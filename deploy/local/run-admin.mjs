// `npm run admin -- …`: the administration on the command line. Builds first when dist/ is not up to date;
// stdout is the command's JSON and nothing else.
// Plain JavaScript without dependencies, since it runs before packages are installed.

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { buildOrExit, installPackages, requireNode, root } from './setup.mjs';

requireNode();
installPackages();
await buildOrExit();
const main = join(root, 'dist/src/admin/main.js');
const admin = spawn(process.execPath, [main, ...process.argv.slice(2)], { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => admin.kill(signal));
admin.on('exit', (code) => process.exit(code ?? 1));
