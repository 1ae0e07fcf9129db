// `npm run bench -- SCENARIO`: measures, prints its progress and a table at the end, and writes the results as JSON and
// as a page. Fails if what is stored differs from what was acknowledged.

import { relative } from 'node:path';
import { addAgain, planAgain } from './again.js';
import { client, clientUsage } from './client/client.js';
import { deletion, deletionUsage } from './deletion/deletion.js';
import { BenchError } from './failure.js';
import { type Options, optionsUsage, readOptions } from './options.js';
import { mergeLogs } from './outside/merge.js';
import { outsideUsage } from './outside/options.js';
import { runOutside } from './outside/run.js';
import { createProgress } from './progress.js';
import { compareResults } from './report/compare.js';
import { drawPage } from './report/draw.js';
import { makePage } from './report/page.js';
import { summary } from './report/summary.js';
import { type Results, readResults, usualPath, writeFiles } from './results.js';
import { allScenarios, scenariosUsage, selectScenarios } from './scenarios.js';
import { runSession } from './session.js';

const usage = `npm run bench -- SCENARIO[,SCENARIO…] [OPTION]…    measures some
npm run bench -- all [OPTION]…                     measures all, which takes about 25 minutes on two cores
npm run bench -- again RESULTS.json                runs what failed in a session once more, and adds it
npm run bench -- compare A.json B.json             says what changed between two sessions
npm run bench -- SCENARIO --url URL [OPTION]…      loads a deployment that runs already
npm run bench -- merge A.hlog B.hlog [--out PATH]  adds up what several generators found
npm run bench -- page RESULTS.json                 draws the page and the plots of results again
npm run bench -- deletion [OPTION]…                measures deletions, which takes about 15 minutes
npm run bench -- client [OPTION]…                  measures the client library in a browser

${scenariosUsage}

${optionsUsage}

${outsideUsage}

${deletionUsage}

${clientUsage}
`;

async function run(command: string, args: readonly string[]): Promise<void> {
  if (command === 'deletion') {
    await deletion([...args]);
    if (args.length === 0) await drawPage(usualPath('deletion', true));
    return;
  }
  if (command === 'client') return client([...args]);
  if (command === 'merge') return mergeLogs(args);
  if (isOutside(command, args)) {
    const progress = createProgress((line) => process.stdout.write(line));
    const kept = await runOutside(command.split(','), args, progress);
    if (!kept) throw new BenchError('not all was kept, see above');
    return;
  }
  if (command === 'page') {
    const [file, ...more] = args;
    if (file === undefined || more.length > 0) throw new BenchError('page takes one file');
    return drawPage(file.replace(/\.json$/, ''));
  }
  if (command === 'compare') {
    const [a, b] = args;
    if (a === undefined || b === undefined || args.length > 2)
      throw new BenchError('compare takes two files');
    process.stdout.write(compareResults(readResults(a), readResults(b)));
    return;
  }
  if (command === 'again') {
    const [file, ...more] = args;
    if (file === undefined || more.length > 0) throw new BenchError('again takes one file');
    const session = readResults(file);
    const { names, args: former } = planAgain(session);
    const found = await measureScenarios(names, session.command, readOptions(former, isAll(session.command)));
    return write(file.replace(/\.json$/, ''), addAgain(session, found));
  }
  const all = isAll(command);
  const options = readOptions(args, all);
  const elsewhere = options.elsewhere !== undefined;
  const given = all ? (options.only ?? allScenarios(elsewhere)) : command.split(',');
  const names = selectScenarios(given, elsewhere);
  const results = await measureScenarios(names, [command, ...args].join(' '), options);
  const standard = options.standard && !elsewhere && all;
  await write(options.out ?? usualPath(command.replaceAll(',', '+'), standard), results);
}

/** Scenarios that are the same wherever the deployment runs stay what they are. */
function isOutside(command: string, args: readonly string[]): boolean {
  const same = allScenarios(true);
  return (
    args.some((arg) => arg === '--url' || arg.startsWith('--url=')) &&
    !command.split(',').every((name) => same.includes(name))
  );
}

function isAll(command: string): boolean {
  return command.split(' ')[0] === 'all';
}

function measureScenarios(names: readonly string[], command: string, options: Options): Promise<Results> {
  const progress = createProgress((line) => process.stdout.write(line));
  progress.say(`measures ${names.join(', ')}`);
  return runSession(names, command, options, progress);
}

/** Writes the results and prints their tables. Throws BenchError if some failed. */
async function write(path: string, results: Results): Promise<void> {
  const page = await makePage(results, path);
  writeFiles(path, results, page.markdown, page.plots);
  process.stdout.write(`\n${summary(results)}\n\nwritten: ${relative(process.cwd(), path)}.json and .md\n`);
  if (results.failures.length > 0) {
    throw new BenchError(`failed: ${results.failures.map(({ scenario }) => scenario).join(', ')}`);
  }
}

const [command, ...args] = process.argv.slice(2);
if (command === undefined || command === 'help' || command === '--help') {
  process.stderr.write(usage);
  process.exit(0);
}
// The exit handlers end the services and remove their data.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
try {
  await run(command, args);
  process.exit(0);
} catch (error) {
  const badOption = (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS');
  if (badOption) {
    const own =
      { deletion: deletionUsage, client: clientUsage }[command] ??
      (isOutside(command, args) ? outsideUsage : optionsUsage);
    process.stderr.write(`bench: ${(error as Error).message}\n\n${own}\n`);
  } else if (error instanceof BenchError) process.stderr.write(`bench: ${error.message}\n`);
  else process.stderr.write(`bench: ${error instanceof Error ? error.stack : String(error)}\n`);
  process.exit(1);
}
