// What does the client library cost a page? Calls with an empty and with a full queue; ten thousand calls in a row; properties of
// 300,000 elements; the start; bytes over the wire and in storage. A real browser runs it, round after round.

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { launchBrowser, withoutBrowser } from '../../harness/browser.js';
import { snippet } from '../../src/client/web/snippet.js';
import { BenchError } from '../failure.js';
import { describeMachine } from '../machine.js';
import { positive } from '../options.js';
import { createProgress } from '../progress.js';
import { usualPath, writeFiles } from '../results.js';
import { type ClientResults, clientReport, clientSummary } from './report.js';
import { type ClientRun, runClient, startClientSite } from './runs.js';

const standardRounds = 5;

export const clientUsage = `  client     costs of the client library in a page, in Chromium; takes about 2 minutes
    --rounds N       rounds; the medians are reported (${standardRounds})
    --script FILE    another build of the script
  Only a run with the standard number of rounds and the usual script writes its results.`;

/** Runs the scenario and writes its results; rejects if a page did not do what was asked. */
export async function client(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: { rounds: { type: 'string', default: String(standardRounds) }, script: { type: 'string' } },
  });
  const rounds = positive('--rounds', values.rounds);
  const missing = withoutBrowser();
  if (missing !== false) throw new BenchError(missing);
  const progress = createProgress((line) => process.stdout.write(line));
  const script = readFileSync(values.script ?? new URL('../../sdk.js', import.meta.url), 'utf8');
  const machine = await describeMachine(undefined);
  const site = await startClientSite();
  const browser = await launchBrowser();
  try {
    const runs: ClientRun[] = [];
    for (let round = 1; round <= rounds; round++) {
      progress.say(`round ${round} of ${rounds}`);
      runs.push(await runClient(browser, site, script));
    }
    const bytes = { raw: Buffer.byteLength(script), gzipped: gzipSync(script, { level: 9 }).length };
    const usual = { appId: '1234567890', baseUrl: 'https://events.example.com' };
    const results: ClientResults = {
      machine,
      browser: `Chromium ${browser.version()}`,
      snippetBytes: Buffer.byteLength(snippet(usual)),
      own: { bytes, runs },
    };
    process.stdout.write(`\n${clientSummary(results)}\n`);
    if (rounds === standardRounds && values.script === undefined) {
      writeFiles(usualPath('client', true), results, clientReport(results), {});
    }
  } finally {
    await browser.close();
    site.close();
  }
}
