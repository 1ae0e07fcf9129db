// A session's page, and its summary for the terminal: the targets, and one section per scenario.

import { figure, markdownTable, textTable } from '../figures.js';
import { describeInWords } from '../machine.js';
import { plotLink, type Results } from '../results.js';
import { plotsOf } from './plots.js';
import { sectionsOf } from './sections.js';
import { targetNote, targetsOf, targetTable } from './targets.js';

/** `path`: the path of the page without its extension. The plots are named after it. */
export async function makePage(results: Results, path: string) {
  const { command, seconds, machine, failures } = results;
  const plots = await plotsOf(results);
  const parts = [
    '# Bench',
    `Written by \`npm run bench -- ${command}\` in ${figure(seconds / 60)} min. ${describeInWords(machine)}`,
    failures.length === 0
      ? checked
      : [
          '**This session failed:**',
          ...failures.map(({ scenario, message }) => `- ${scenario}: ${message}`),
        ].join('\n'),
  ];
  const targets = targetTable(targetsOf(results));
  if (targets.rows.length > 0) parts.push('## Targets', targetNote, markdownTable(targets));
  for (const section of sectionsOf(results)) {
    parts.push(`## ${section.title}`, section.note);
    for (const [name, shows] of section.plots ?? []) {
      if (plots[name] !== undefined) parts.push(plotLink(path, name, shows));
    }
    parts.push(...section.tables.map(markdownTable));
  }
  return { markdown: `${parts.join('\n\n')}\n`, plots };
}

/** The text that a session prints at the end. */
export function summary(results: Results): string {
  const parts = sectionsOf(results).map(
    ({ title, tables }) => `${title}\n${tables.map(textTable).join('\n\n')}`,
  );
  const targets = targetTable(targetsOf(results));
  if (targets.rows.length > 0) parts.push(`Targets\n${textTable(targets)}`);
  for (const { scenario, message } of results.failures) parts.push(`FAILED: ${scenario}: ${message}`);
  return parts.join('\n\n');
}

const checked = `After every run exactly the acknowledged records were stored, each event under its own id. A session in which one
is missing, doubled or refused fails.`;
