// Checks that a process accepts the environment that a file of deploy/ gives it.

import assert from 'node:assert/strict';
import { type Config, readConfig } from '../../src/config.js';

/** Reads the configuration as a process would; fails when a value is bad or a variable is unknown. */
export function assertConfigures(env: NodeJS.ProcessEnv, what: string): Config {
  const { config, read } = readWatched(env);
  const unread = Object.keys(env).filter((name) => !read.has(name));
  assert.deepEqual(unread, [], `${what} sets variables that nothing reads`);
  return config;
}

/** The variables that operators may set. */
export function listVariables(): string[] {
  return [...readWatched({}).read].filter((name) => name !== 'CRASH_AT').toSorted();
}

function readWatched(env: NodeJS.ProcessEnv): { config: Config; read: ReadonlySet<string> } {
  const read = new Set<string>();
  const watched = new Proxy(env, {
    get(target, name) {
      read.add(String(name));
      return target[String(name)];
    },
  });
  return { config: readConfig(watched), read };
}

/** What an operator sets where a file leaves ADMIN_TOKEN empty or has a placeholder. */
export const operatorsToken = '0f3b9c57d1e8246a90bd73e5c1f2846a7d05e9b3';
