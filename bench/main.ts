// `npm run bench -- SCENARIO`: measures, prints progress and finally tables, and writes the results as JSON and as a page. Fails if stored
// and acknowledged records differ.

import { relative } from 'node:path';
import { client, clientUsage } from './client/client.js';
import { BenchError } from './failure.js';
import { optionsUsage, readOptions } from './options.js';
import { outsideUsage } from './outside/options.js';
import { mergeLogs } from './outside/page.js';
import { runOutside } from './outside/run.js';
import { createProgress } from './progress.js';
import { guard, guardedNames, guardTable } from './report/guard.js';
import { makePage, summary } from './report/page.js';
import { type Results, readResults, usualPath, writeFiles } from './results.js';
import { scenariosUsage, selectScenarios } from './scenarios.js';
import { runSession } from './session.js';

const usage = `npm run bench -- SCENARIO[,SCENARIO…] [OPTION]…    measures these scenarios
npm run bench -- all [OPTION]…                     measures all scenarios but keys, servers, replicas, deletion, stream and desk
npm run bench -- guard [RESULTS.json]              checks in three minutes whether an event costs more than in that session
npm run bench -- page RESULTS.json                 writes the page and plots of a session again
npm run bench -- SCENARIO --url URL [OPTION]…      loads a deployment that already runs
npm run bench -- merge A.hlog B.hlog [--out PATH]  adds up the logs of several generators
npm run bench -- client [OPTION]…                  measures the client library in a browser

${[scenariosUsage, optionsUsage, outsideUsage, clientUsage].join('\n\n')}
`;

/** Sessions whose results are published when they run without options. */
const published: readonly string[] = ['all', 'deletion', 'desk', 'keys', 'servers', 'replicas', 'stream'];

const print = (text: string) => void process.stdout.write(text);

const commands: Readonly<Record<string, (args: readonly string[]) => Promise<void> | void>> = {
  client,
  merge: (args) => mergeLogs(args, print),
  page: async (args) => {
    const path = onlyFile(args, 'page takes one file');
    await write(path, readResults(path));
  },
  guard: async (args) => {
    const published = `${usualPath('all', true)}.json`;
    const stored = readResults(args.length === 0 ? published : onlyFile(args, 'guard takes one file'));
    const now = await measureScenarios(guardedNames, 'guard', ['--repeats', '5', '--duration', '3']);
    const found = guard(stored, now);
    print(`\n${guardTable(found, stored)}`);
    await write(usualPath(`guard-${now.machine.commit}`, false), now);
    const worse = found.filter(({ verdict }) => verdict !== 'same' && verdict !== 'better');
    if (worse.length > 0)
      throw new BenchError(`an event costs more than before: ${worse.map(({ way }) => way).join(', ')}`);
  },
};

function onlyFile(args: readonly string[], words: string): string {
  const [file, ...more] = args;
  if (file === undefined || more.length > 0) throw new BenchError(words);
  return file;
}

async function run(command: string, args: readonly string[]): Promise<void> {
  if (isOutside(args)) {
    process.exit(await runOutside(command.split(','), args, createProgress(print), print));
  }
  const known = commands[command];
  if (known !== undefined) return known(args);
  const options = readOptions(args);
  const names = selectScenarios(command.split(','));
  const results = await measureScenarios(names, [command, ...args].join(' '), args);
  const isPublished = options.standard && published.includes(command);
  await finish(options.out ?? usualPath(command.replaceAll(',', '+'), isPublished), results);
}

function isOutside(args: readonly string[]): boolean {
  return args.some((arg) => arg === '--url' || arg.startsWith('--url='));
}

function measureScenarios(names: readonly string[], command: string, args: readonly string[]) {
  const progress = createProgress(print);
  progress.say(`measures ${names.join(', ')}`);
  return runSession(names, command, readOptions(args), progress);
}

/** Writes the results and prints their tables. Throws BenchError if a scenario failed. */
async function finish(path: string, results: Results): Promise<void> {
  print(`\n${summary(results)}\n`);
  await write(path, results);
  if (results.failures.length > 0) {
    throw new BenchError(`failed: ${results.failures.map(({ scenario }) => scenario).join(', ')}`);
  }
}

async function write(file: string, results: Results): Promise<void> {
  const path = file.replace(/\.json$/, '');
  const { markdown, plots } = await makePage(results, path);
  writeFiles(path, results, markdown, plots);
  print(`\nwritten: ${relative(process.cwd(), path)}.json and .md\n`);
}

const [command, ...args] = process.argv.slice(2);
if (command === undefined || command === 'help' || command === '--help') {
  process.stderr.write(usage);
  process.exit(0);
}
// The handlers of `exit` stop the services and remove their data.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
try {
  await run(command, args);
  process.exit(0);
} catch (error) {
  const { code = '', message, stack = String(error) } = error as NodeJS.ErrnoException;
  const own = command === 'client' ? clientUsage : isOutside(args) ? outsideUsage : optionsUsage;
  const words = code.startsWith('ERR_PARSE_ARGS') ? `${message}\n\n${own}` : message;
  process.stderr.write(`bench: ${error instanceof BenchError || words !== message ? words : stack}\n`);
  process.exit(1);
}
