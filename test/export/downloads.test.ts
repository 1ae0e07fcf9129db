// Which download makes way when an account that has none waits for a place.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createDownloads, type Download } from '../../src/privacy/export/downloads.js';

const slowAfterMs = 50;

test('a slow reader makes way for an account that waits, but a reader whose records take long to find does not', async () => {
  const downloads = createDownloads(60_000, slowAfterMs);
  const held: (Download & { readonly account: string })[] = [];
  for (const account of ['searching', 'searching', 'fast', 'fast', 'slow', 'small']) {
    const download = await downloads.begin(account);
    assert.ok(download !== undefined);
    held.push({ ...download, account });
    download.signal.addEventListener('abort', download.end);
  }
  const of = (name: string) => held.filter(({ account }) => account === name);
  const never = () => new Promise<boolean>(() => undefined);
  for (const { deliver } of of('slow')) void deliver(1, never);
  for (const { deliver } of of('fast')) {
    await deliver(64 * 1024 * 1024, async () => true);
    void deliver(1, never);
  }
  const late = await downloads.begin('late');
  assert.ok(late !== undefined);
  const aborted = held.filter(({ signal }) => signal.aborted).map(({ account }) => account);
  assert.deepEqual(aborted, ['slow']);
  late.end();
  for (const { end } of held) end();
  downloads.close();
});
