// `npm run admin -- …`, the administration on the command line, and `npm run import -- …`, which sends files of history to the service.
// Builds first when dist/ is not up to date; stdout is the program's result as JSON and nothing else. Plain JavaScript without
// dependencies, since it runs before packages are installed.

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { buildOrExit, installPackages, requireNode, root } from './setup.mjs';

const [, , program, ...args] = process.argv;
requireNode();
installPackages();
await buildOrExit();
const child = spawn(process.execPath, [join(root, 'dist', program), ...args], { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
child.on('exit', (code) => process.exit(code ?? 1));
