// What a start on one machine gives its API beyond the environment: an ADMIN_TOKEN of its own, so that the pages
// for administrators work after one command, and the demo.

import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Config } from '../../src/config.js';
import { StartError } from './start-error.js';

export type Administration = {
  /** For the environment of the API processes. */
  readonly env: NodeJS.ProcessEnv;
  /** Where the token is; undefined when it was given by the environment. */
  readonly tokenFile: string | undefined;
  readonly demo: boolean;
};

/**
 * Makes a token in DATA_DIR at the first start, readable by its owner only, and finds it at the next ones. What
 * the environment says stands. Throws StartError when the file cannot be read or written.
 */
export function prepareAdministration(config: Config, environment: NodeJS.ProcessEnv): Administration {
  // The demo shows its account's data without a token: only where all of it was made for trying.
  const isDemoUnset = environment.DEMO === undefined || environment.DEMO === '';
  const demo = isDemoUnset ? config.redisEmbedded && config.clickhouseEmbedded : config.demo;
  const env = { DEMO: demo ? '1' : '0' };
  if (config.adminToken !== '') return { env, tokenFile: undefined, demo };
  const tokenFile = join(config.dataDir, 'admin-token');
  return { env: { ...env, ADMIN_TOKEN: findOrMakeToken(tokenFile) }, tokenFile, demo };
}

function findOrMakeToken(file: string): string {
  try {
    const found = readToken(file);
    if (found !== undefined) return found;
    const made = randomBytes(24).toString('base64url');
    writeFileSync(file, `${made}\n`, { mode: 0o600 });
    return made;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new StartError(`the ADMIN_TOKEN in ${file} cannot be read or written (${code})`);
  }
}

/** Undefined when there is none, or a first start was cut off while it wrote it. */
function readToken(file: string): string | undefined {
  try {
    const text = readFileSync(file, 'utf8').trim();
    return text === '' ? undefined : text;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
