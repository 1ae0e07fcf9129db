// What does the client library cost a page? Measures in a real browser, in several rounds: calls with an empty and with a full queue; ten
// thousand events in a row; properties of 300,000 elements; the start; bytes over the wire and in storage.

import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { snippet } from '../../src/libraries/client/web/snippet.js';
import { launchBrowser, wholeBrowser, withoutBrowser } from '../../test/harness/browser.js';
import { BenchError } from '../failure.js';
import { describeMachine } from '../machine.js';
import { option, readTable, text, usageOf, usual, whole } from '../options.js';
import { createProgress } from '../progress.js';
import { usualPath, writeFiles } from '../results.js';
import { type ClientResults, clientReport, clientSummary } from './report.js';
import { type ClientRun, runClient, startClientSite } from './runs.js';

const standardRounds = 5;

const table = {
  rounds: usual(String(standardRounds), 'N', 'rounds; the medians are reported', whole),
  script: option('FILE', 'another build of the script', text),
};
const title = 'Options of client, in Chromium; it takes about 2 minutes';
export const clientUsage = `${usageOf(title, table)}
Only a run with the standard number of rounds and the usual script writes its results.`;

/** Runs the scenario and writes its results. Rejects if a page did not do its part. */
export async function client(args: readonly string[]): Promise<void> {
  const { rounds, script: file } = readTable(table, args);
  const missing = withoutBrowser(wholeBrowser);
  if (missing !== false) throw new BenchError(missing);
  const progress = createProgress((line) => process.stdout.write(line));
  const script = readFileSync(file ?? new URL('../../sdk.js', import.meta.url), 'utf8');
  const machine = await describeMachine();
  const site = await startClientSite();
  const browser = await launchBrowser(wholeBrowser);
  try {
    const runs: ClientRun[] = [];
    for (let round = 1; round <= rounds; round += 1) {
      progress.say(`round ${round} of ${rounds}`);
      runs.push(await runClient(browser, site, script));
    }
    const bytes = { raw: Buffer.byteLength(script), gzipped: gzipSync(script, { level: 9 }).length };
    const usual = { appId: '1234567890', baseUrl: 'https://events.example.com' };
    const snippetBytes = Buffer.byteLength(snippet(usual));
    const version = `Chromium ${browser.version()}`;
    const results: ClientResults = { machine, browser: version, snippetBytes, own: { bytes, runs } };
    process.stdout.write(`\n${clientSummary(results)}\n`);
    if (rounds === standardRounds && file === undefined) {
      writeFiles(usualPath('client', true), results, clientReport(results), {});
    }
  } finally {
    await browser.close();
    site.close();
  }
}
