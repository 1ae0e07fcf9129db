// What processes of a deployment log.

import assert from 'node:assert/strict';
import type { Deployment } from '../harness/sluice.js';

/** Asserts that the logs are one JSON document per line, and that nothing in them matches `sent`. */
export function checkLogs({ api, workers }: Pick<Deployment, 'api' | 'workers'>, sent: RegExp): void {
  for (const child of [...api, ...workers]) {
    const output = child.output();
    assert.doesNotMatch(output, sent);
    // The last line may be incomplete.
    const lines = output
      .split('\n')
      .slice(0, -1)
      .filter((text) => text !== '');
    assert.ok(lines.length > 0, `${child.name} has logged something`);
    for (const text of lines) JSON.parse(text);
  }
}
