// What does the client library cost a page? Calls with an empty and with a full queue; ten thousand calls in a row; properties of
// 300,000 elements; the start; bytes over the wire and in storage. A real browser runs it, round after round, optionally in
// turns with another build of the script.

import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { launchBrowser, withoutBrowser } from '../../harness/browser.js';
import { snippet } from '../../src/client/web/snippet.js';
import { BenchError } from '../failure.js';
import { describeMachine } from '../machine.js';
import { positive } from '../options.js';
import { createProgress } from '../progress.js';
import { usualPath, writeFiles } from '../results.js';
import { type ClientBuild, type ClientResults, clientReport, clientSummary } from './report.js';
import { type ClientRun, runClient, startClientSite } from './runs.js';

const standardRounds = 5;

export const clientUsage = `  client     costs of the client library in a page, in Chromium; takes about 4 minutes
    --rounds N       rounds; the medians are reported (${standardRounds})
    --beside FILE    another build of the script, measured in turns with this one
  Only a run with the standard number of rounds writes its results.`;

/** Runs the scenario and writes its results; rejects if a page did not do what was asked. */
export async function client(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: { rounds: { type: 'string', default: String(standardRounds) }, beside: { type: 'string' } },
  });
  const rounds = positive('--rounds', values.rounds);
  const missing = withoutBrowser();
  if (missing !== false) throw new BenchError(missing);
  const progress = createProgress((line) => process.stdout.write(line));
  const builds = [buildOf('this one', new URL('../../sdk.js', import.meta.url))];
  if (values.beside !== undefined) builds.push(buildOf('the other', values.beside));

  const machine = await describeMachine(undefined);
  const site = await startClientSite();
  const browser = await launchBrowser();
  try {
    for (let round = 1; round <= rounds; round++) {
      // Builds take turns, so that other load on the machine affects both.
      for (const { name, script, runs } of round % 2 === 0 ? builds.toReversed() : builds) {
        progress.say(`round ${round} of ${rounds}, ${name}`);
        runs.push(await runClient(browser, site, script));
      }
    }
    const [own, other] = builds.map(({ script, ...build }) => ({ ...build, bytes: bytesOf(script) }));
    const results: ClientResults = {
      machine,
      // Only the file's name: results must not tell folders.
      options: args.map((arg) => (arg === values.beside ? basename(arg) : arg)).join(' '),
      browser: `Chromium ${browser.version()}`,
      snippetBytes: Buffer.byteLength(
        snippet({ appId: '1234567890', baseUrl: 'https://events.example.com' }),
      ),
      own: own as ClientBuild,
      other,
    };
    process.stdout.write(`\n${clientSummary(results)}\n`);
    if (rounds === standardRounds) {
      writeFiles(usualPath('client', true), results, clientReport(results), {});
    }
  } finally {
    await browser.close();
    site.close();
  }
}

function buildOf(name: string, file: string | URL): { name: string; script: string; runs: ClientRun[] } {
  try {
    return { name, script: readFileSync(file, 'utf8'), runs: [] };
  } catch (error) {
    throw new BenchError(`the script cannot be read: ${(error as Error).message}`);
  }
}

function bytesOf(script: string): ClientBuild['bytes'] {
  return { raw: Buffer.byteLength(script), gzipped: gzipSync(script, { level: 9 }).length };
}
