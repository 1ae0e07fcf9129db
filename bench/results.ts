// Where results go: bench/results, one file for programs and one for people.

import { mkdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const folder = fileURLToPath(new URL('../../bench/results/', import.meta.url));

export function writeResults(scenario: string, data: object, report: string): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${folder}${scenario}.json`, `${JSON.stringify(data, null, 2)}\n`);
  writeFileSync(`${folder}${scenario}.md`, report);
}
