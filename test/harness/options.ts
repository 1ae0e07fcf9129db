// Reads the options of the tools' commands.

import { type ParseArgsConfig, parseArgs } from 'node:util';

/** Reads a command's options. If there is an unknown one, prints the known ones and ends the process with code 2. */
export function readOptions<T extends NonNullable<ParseArgsConfig['options']>>(command: string, options: T) {
  try {
    return parseArgs({ options }).values;
  } catch (error) {
    const [reason] = (error as Error).message.split('. ');
    const known = Object.keys(options).map((name) => `--${name}`);
    process.stderr.write(`${command}: ${reason}; it takes ${known.join(', ')}\n`);
    process.exit(2);
  }
}
