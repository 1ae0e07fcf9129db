// `test` of node:test for files of which `npm test` leaves out single tests, which runner/lanes.ts names.

import { test as anyTest, type TestContext, type TestOptions } from 'node:test';
import { leavesOut } from '../runner/lanes.js';

type Body = (context: TestContext) => void | Promise<void>;

export function test(name: string, ...rest: [Body] | [TestOptions, Body]): void {
  const run = leavesOut(process.argv[1] ?? '', name) ? anyTest.skip : anyTest;
  const [options, body] = rest.length === 1 ? [{}, rest[0]] : rest;
  void run(name, options, body);
}
