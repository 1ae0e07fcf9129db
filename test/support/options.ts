// The options of the commands beside the tests: what a command does not take is said in one line.

import { type ParseArgsConfig, parseArgs } from 'node:util';

/** Reads a command's options. For any other it ends the process, with code 2 and the options that there are. */
export function readOptions<T extends NonNullable<ParseArgsConfig['options']>>(command: string, options: T) {
  try {
    return parseArgs({ options }).values;
  } catch (error) {
    const [reason] = (error as Error).message.split('. ');
    const taken = Object.keys(options).map((name) => `--${name}`);
    process.stderr.write(`${command}: ${reason}; it takes ${taken.join(', ')}\n`);
    process.exit(2);
  }
}
