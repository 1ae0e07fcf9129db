// What a start on one machine adds to the environment of its API: an ADMIN_TOKEN, so that the pages for administrators work after one
// command, and the demo.

import { join } from 'node:path';
import { type Config, isLoopback } from '../../src/config.js';
import { findOrMakeSecret } from './secrets.js';
import { StartError } from './start-error.js';

export type Administration = {
  /** For the environment of the API processes. */
  readonly env: NodeJS.ProcessEnv;
  /** The file with the token; undefined if the environment sets the token. */
  readonly tokenFile: string | undefined;
  readonly demo: boolean;
};

/**
 * Creates a token in DATA_DIR at the first start, readable only by its owner, and reads it at later starts. A token in the environment
 * takes precedence. Throws StartError when the file cannot be read or written.
 */
export function prepareAdministration(config: Config, environment: NodeJS.ProcessEnv): Administration {
  // The demo shows its account's data without a token, so it is enabled only if everything is on this machine.
  const isDemoUnset = environment.DEMO === undefined || environment.DEMO === '';
  const isLocal = [config.host, config.adminHost].every(isLoopback);
  const isEmbedded = config.redisEmbedded && config.clickhouseEmbedded;
  const demo = isDemoUnset ? isLocal && isEmbedded : config.demo;
  const env = { DEMO: demo ? '1' : '0' };
  if (config.adminToken !== '') return { env, tokenFile: undefined, demo };
  const tokenFile = join(config.dataDir, 'admin-token');
  return { env: { ...env, ADMIN_TOKEN: findOrMakeToken(tokenFile) }, tokenFile, demo };
}

function findOrMakeToken(file: string): string {
  try {
    return findOrMakeSecret(file);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new StartError(`the ADMIN_TOKEN in ${file} cannot be read or written (${code})`);
  }
}
