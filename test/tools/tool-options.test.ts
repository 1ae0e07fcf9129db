// The tools say which options they have.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

for (const [command, args, taken] of [
  ['chaos', ['--help'], '--rounds, --parallel'],
  ['fuzz', ['--cuont', '5'], '--count, --seed'],
  ['soak', ['fast'], '--minutes'],
] as const) {
  test(`${command} says in one line which options there are`, () => {
    const main = fileURLToPath(new URL(`../${command}/main.js`, import.meta.url));
    const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], { encoding: 'utf8' });
    assert.deepEqual([status, stdout], [2, '']);
    assert.match(stderr, new RegExp(`^${command}: .*${args[0]}.*; it takes ${taken}.*\n$`));
  });
}
