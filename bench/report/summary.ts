// What a session prints at its end.

import { textTable } from '../figures.js';
import type { Results } from '../results.js';
import {
  connectionsTable,
  flatEnvironmentsTable,
  flatTable,
  keysTable,
  latencyTable,
  segmentTable,
  soakTable,
  type Table,
  targetTable,
  wayTable,
} from './tables.js';

export function summary(results: Results): string {
  const parts: string[] = [];
  const add = (title: string, { head, rows }: Table) => {
    if (rows.length > 0) parts.push(`${title}\n${textTable(head, rows)}`);
  };
  add('Highest rates and cost', wayTable(results.ways));
  if (results.connections !== undefined) {
    const { name, version } = results.connections.generator;
    add(`Connections, by ${name} ${version}`, connectionsTable(results));
  }
  add('Latency', latencyTable(results));
  if (results.segments !== undefined) add('Backlog in Redis', segmentTable(results));
  if (results.flat !== undefined) {
    add('Flat', flatTable(results));
    add('Environments', flatEnvironmentsTable(results));
  }
  if (results.keys !== undefined) add('Keys', keysTable(results));
  if ((results.soak?.samples.length ?? 0) > 0) add('Soak', soakTable(results));
  add('Targets', targetTable(results));
  for (const { scenario, message } of results.failures) parts.push(`FAILED: ${scenario}: ${message}`);
  return parts.join('\n\n');
}
