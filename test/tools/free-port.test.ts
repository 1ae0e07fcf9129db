// Ports for test processes that run side by side.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { freePort } from '../harness/free-port.js';

test('never gives a port that another test process may get, even if nobody listens there', async (context) => {
  const module = new URL('../harness/free-port.js', import.meta.url).href;
  const code = `const { freePort } = await import('${module}');
    const ports = [];
    for (let n = 0; n < 200; n += 1) ports.push(await freePort());
    console.log(JSON.stringify(ports));
    setInterval(() => undefined, 1_000);`;
  const take = async () => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', code]);
    let text = '';
    child.stdout.setEncoding('utf8');
    while (!text.endsWith('\n')) text += String((await once(child.stdout, 'data'))[0]);
    return { child, ports: JSON.parse(text) as number[] };
  };
  const taken = await Promise.all(Array.from({ length: 6 }, take));
  context.after(() => {
    for (const { child } of taken) child.kill();
  });
  const ports = [...taken.flatMap((one) => one.ports), await freePort()];
  assert.equal(new Set(ports).size, 6 * 200 + 1);
});

test('starts again with the first port after the last one of a process’s block', async () => {
  const ports: number[] = [];
  for (let taken = 0; taken < 600; taken += 1) ports.push(await freePort());
  assert.ok(new Set(ports).size < 250);
});
