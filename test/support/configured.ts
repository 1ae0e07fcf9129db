// Whether an environment that a file of deploy/ gives a process is one that it understands.

import assert from 'node:assert/strict';
import { type Config, readConfig } from '../../src/config.js';

/** Reads the configuration as a process would; fails when a value is bad or nobody reads a variable. */
export function assertConfigures(env: NodeJS.ProcessEnv, what: string): Config {
  const read = new Set<string>();
  const watched = new Proxy(env, {
    get(target, name) {
      read.add(String(name));
      return target[String(name)];
    },
  });
  const config = readConfig(watched);
  const unread = Object.keys(env).filter((name) => !read.has(name));
  assert.deepEqual(unread, [], `${what} sets variables that nothing reads`);
  return config;
}
