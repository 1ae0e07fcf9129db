// `npm run import -- …` and `sluice-import`. The command is in `command.ts`.

import { importCommand } from './command.js';

const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopping.abort());

process.exitCode = await importCommand(process.argv.slice(2), process.env, stopping.signal, process);
