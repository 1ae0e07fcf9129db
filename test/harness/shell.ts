// Runs the shell commands that a user copies from the console or the documentation.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** Runs a command; settles with what it prints, rejects when it fails. */
export async function inShell(command: string): Promise<string> {
  const { stdout } = await promisify(execFile)('sh', ['-c', command]);
  return stdout;
}
