// The person who runs a command on the command line, for the audit log.

import { hostname, userInfo } from 'node:os';
import type { Actor } from '../registry/audit/audit.js';

/** The user who typed the command, even behind sudo, and the machine. */
export function commandLineActor(sudoUser = ''): Actor {
  return { kind: 'command_line', name: sudoUser || userName(), address: hostname() };
}

/** In a container a user may have only a number. */
function userName(): string {
  try {
    return userInfo().username;
  } catch (error) {
    if ((error as { code?: string }).code !== 'ERR_SYSTEM_ERROR') throw error;
    return `uid ${process.getuid?.()}`;
  }
}
