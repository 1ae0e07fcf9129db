// `npm run bench -- SCENARIO`: measures, prints progress and at the end tables, and writes the results as JSON and as a page.
// Fails if stored and acknowledged records differ.

import { relative } from 'node:path';
import { addAgain, planAgain } from './again.js';
import { client, clientUsage } from './client/client.js';
import { BenchError } from './failure.js';
import { optionsUsage, readOptions } from './options.js';
import { mergeLogs } from './outside/merge.js';
import { outsideUsage } from './outside/options.js';
import { runOutside } from './outside/run.js';
import { createProgress } from './progress.js';
import { compareResults } from './report/compare.js';
import { makePage, summary } from './report/page.js';
import { type Results, readResults, usualPath, writeFiles } from './results.js';
import { scenariosUsage, selectScenarios } from './scenarios.js';
import { runSession } from './session.js';

const usage = `npm run bench -- SCENARIO[,SCENARIO…] [OPTION]…    measures these scenarios
npm run bench -- all [OPTION]…                     measures all scenarios but keys, servers, deletion and desk
npm run bench -- again RESULTS.json                repeats the failed scenarios of a session and adds their results
npm run bench -- compare A.json B.json             shows what changed between two sessions
npm run bench -- page RESULTS.json                 writes the page and plots of a session again
npm run bench -- SCENARIO --url URL [OPTION]…      loads a deployment that already runs
npm run bench -- merge A.hlog B.hlog [--out PATH]  adds up the logs of several generators
npm run bench -- client [OPTION]…                  measures the client library in a browser

${scenariosUsage}

${optionsUsage}

${outsideUsage}

${clientUsage}
`;

/** Sessions of these without options are published. */
const published: readonly string[] = ['all', 'deletion', 'desk', 'keys', 'servers'];

const commands: Readonly<Record<string, (args: readonly string[]) => Promise<void> | void>> = {
  client: (args) => client([...args]),
  merge: (args) => mergeLogs(args, print),
  page: async (args) => {
    const path = only(args, 'page');
    await write(path.replace(/\.json$/, ''), readResults(path), false);
  },
  compare: (args) => {
    const [a, b] = args;
    if (a === undefined || b === undefined || args.length > 2) {
      throw new BenchError('compare takes two files');
    }
    process.stdout.write(compareResults(readResults(a), readResults(b)));
  },
  again: async (args) => {
    const path = only(args, 'again');
    const session = readResults(path);
    const { names, args: former } = planAgain(session);
    const found = await measureScenarios(names, session.command, former);
    await write(path.replace(/\.json$/, ''), addAgain(session, found));
  },
};

async function run(command: string, args: readonly string[]): Promise<void> {
  if (isOutside(args)) {
    process.exit(await runOutside(command.split(','), args, toTerminal(), print));
  }
  const known = commands[command];
  if (known !== undefined) return known(args);
  const options = readOptions(args, command === 'all');
  const names = selectScenarios(options.only ?? command.split(','));
  const results = await measureScenarios(names, [command, ...args].join(' '), args);
  const isPublished = options.standard && published.includes(command);
  await write(options.out ?? usualPath(command.replaceAll(',', '+'), isPublished), results);
}

function only(args: readonly string[], command: string): string {
  const [file, ...more] = args;
  if (file === undefined || more.length > 0) throw new BenchError(`${command} takes one file`);
  return file;
}

function isOutside(args: readonly string[]): boolean {
  return args.some((arg) => arg === '--url' || arg.startsWith('--url='));
}

function print(text: string): void {
  process.stdout.write(text);
}

function toTerminal() {
  return createProgress(print);
}

function measureScenarios(
  names: readonly string[],
  command: string,
  args: readonly string[],
): Promise<Results> {
  const progress = toTerminal();
  progress.say(`measures ${names.join(', ')}`);
  return runSession(names, command, readOptions(args, command.split(' ')[0] === 'all'), progress);
}

/** Writes the results and prints their tables. Throws BenchError if a scenario failed. */
async function write(path: string, results: Results, prints = true): Promise<void> {
  const { markdown, plots } = await makePage(results, path);
  writeFiles(path, results, markdown, plots);
  if (prints) process.stdout.write(`\n${summary(results)}\n`);
  process.stdout.write(`\nwritten: ${relative(process.cwd(), path)}.json and .md\n`);
  if (prints && results.failures.length > 0) {
    throw new BenchError(`failed: ${results.failures.map(({ scenario }) => scenario).join(', ')}`);
  }
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
  const badOption = (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS');
  if (badOption) {
    const own = command === 'client' ? clientUsage : isOutside(args) ? outsideUsage : optionsUsage;
    process.stderr.write(`bench: ${(error as Error).message}\n\n${own}\n`);
  } else if (error instanceof BenchError) process.stderr.write(`bench: ${error.message}\n`);
  else process.stderr.write(`bench: ${error instanceof Error ? error.stack : String(error)}\n`);
  process.exit(1);
}
