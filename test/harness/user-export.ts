// Exports in tests: asking for one, waiting until it is complete, and reading its lines.

import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import { fromBufferPromise } from 'yauzl';
import { callWithToken, type NamedUser, type Reply } from './deletion.js';
import { until } from './wait.js';

type Deployment = { readonly baseUrl: string };

export const exportPath = '/api/public/v0/user_export';

export type Line = { readonly kind: string; readonly app_id?: string } & Readonly<Record<string, unknown>>;

/** Asks for an export; settles with any answer. A `body` that is text is sent as it is. */
export function askForExport(
  sluice: Deployment,
  token: string,
  body: string | readonly NamedUser[],
): Promise<Reply> {
  return callWithToken(sluice, token, exportPath, typeof body === 'string' ? body : { users: body });
}

/** Asks for an export that must be accepted; settles with its id. */
export async function submitExport(
  sluice: Deployment,
  token: string,
  users: readonly NamedUser[],
): Promise<string> {
  const reply = await askForExport(sluice, token, users);
  assert.equal(reply.status, 201, reply.text);
  return (JSON.parse(reply.text) as { user_export_id: string }).user_export_id;
}

export function readExportStatus(sluice: Deployment, token: string, id: string): Promise<Reply> {
  return callWithToken(sluice, token, `${exportPath}/${id}`);
}

export async function untilExportComplete(sluice: Deployment, token: string, id: string): Promise<void> {
  await until(
    async () => {
      const reply = await readExportStatus(sluice, token, id);
      assert.equal(reply.status, 200, reply.text);
      return (JSON.parse(reply.text) as { status: string }).status === 'complete';
    },
    { deadlineMs: 180_000, what: 'the export is complete' },
  );
}

/** Asks for the data; settles with any answer. */
export function readExportData(sluice: Deployment, token: string, id: string): Promise<Reply> {
  return callWithToken(sluice, token, `${exportPath}/${id}/data`);
}

/** Settles with the records of a complete export, without the lines about merged users and the end. */
export async function readRecords(sluice: Deployment, token: string, id: string): Promise<Line[]> {
  const reply = await readExportData(sluice, token, id);
  assert.equal(reply.status, 200, reply.text);
  return recordsOf(linesOf(reply.text));
}

export function linesOf(text: string): Line[] {
  assert.ok(text.endsWith('\n'), `the last line is whole: ${text.slice(-200)}`);
  return text
    .slice(0, -1)
    .split('\n')
    .map((line) => JSON.parse(line) as Line);
}

/** The records among the lines; asserts that the lines end as those of a complete export. */
export function recordsOf(lines: readonly Line[]): Line[] {
  const records = lines.slice(0, -1).filter(({ kind }) => kind !== 'user');
  assert.deepEqual(lines.at(-1), { kind: 'end', records: records.length });
  return records;
}

/** Settles with the text of an archive's files by name; rejects if the archive is not complete. */
export async function filesOfArchive(archive: Buffer): Promise<Map<string, string>> {
  const zip = await fromBufferPromise(archive, { lazyEntries: true });
  const files = new Map<string, string>();
  for await (const entry of zip.eachEntry())
    files.set(entry.fileName, (await buffer(await zip.openReadStreamPromise(entry))).toString());
  return files;
}
