// Owns the engine: ClickHouse as a library. It is started as `clickhouse local` is, which can open ClickHouse's own HTTP and native
// servers.

import { closeSync, openSync } from 'node:fs';
import { createRequire } from 'node:module';
import { endOnFailedWrite } from './failed-writes.js';

const require = createRequire(import.meta.url);

/** What this machine lacks for an embedded ClickHouse, and what to do, in one line; undefined if nothing is missing. */
export function missingEngine(): string | undefined {
  const absent = [`${engineName}/libchdb.so`, 'ffi-rs'].filter((name) => !isInstalled(name));
  if (absent.length === 0) return undefined;
  return `the embedded ClickHouse is not there for this machine (${absent.join(', ')}): set CLICKHOUSE_URL to a server`;
}

const engineName = `@chdb/lib-${process.platform}-${process.arch}-gnu`;

function isInstalled(name: string): boolean {
  try {
    require.resolve(name);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') return false;
    throw error;
  }
}

/** Loads the library. This takes no time; the first call to it does. */
export function loadEngine() {
  const { DataType, load, open } = require('ffi-rs') as typeof import('ffi-rs');
  const library = require.resolve(`${engineName}/libchdb.so`);
  open({ library: 'engine', path: library });
  open({ library: 'c', path: '' });
  /** Numbers are passed as 64 bits, of which C functions with shorter parameters read the lower half. */
  const callC = (funcName: string, ...args: readonly (number | string | Buffer)[]): number =>
    load({
      library: 'c',
      funcName,
      retType: DataType.I64,
      paramsType: args.map((arg) =>
        typeof arg === 'number' ? DataType.I64 : typeof arg === 'string' ? DataType.String : DataType.U8Array,
      ),
      paramsValue: [...args],
    });
  return {
    /** Starts the servers. Settles only when the engine has ended by itself, with the reason; for example when it cannot start. */
    async run(configFile: string): Promise<string> {
      pretendTerminal();
      // The first call loads the library.
      await load({
        library: 'engine',
        funcName: 'chdb_version',
        retType: DataType.External,
        paramsType: [],
        paramsValue: [],
        runInNewThread: true,
      });
      endOnFailedWrite(library, { call: callC });
      const args = ['clickhouse', `--config-file=${configFile}`, ...options, '--query', statement];
      const result = await load({
        library: 'engine',
        funcName: 'chdb_query_cmdline',
        retType: DataType.External,
        paramsType: [DataType.I32, DataType.StringArray],
        paramsValue: [args.length, args],
        // In a new thread, so that the main thread stays free for signals.
        runInNewThread: true,
      });
      // The engine writes some errors to standard error itself, and then returns no text.
      const error = { library: 'engine', funcName: 'chdb_result_error', paramsType: [DataType.External] };
      const address = load({ ...error, retType: DataType.U64, paramsValue: [result] });
      return Number(address) === 0 ? '' : load({ ...error, retType: DataType.String, paramsValue: [result] });
    },
    /** Ends the process at once, without the engine's own shutdown, which waits for its threads. */
    exit(code: number): never {
      load({
        library: 'c',
        funcName: '_exit',
        retType: DataType.Void,
        paramsType: [DataType.I32],
        paramsValue: [code],
      });
      throw new Error('_exit returned');
    },
  };
}

const statement = 'SYSTEM START LISTEN QUERIES ALL';

/** After its statement the engine reads from its terminal, where nobody types. So it runs until it is ended. */
const options = [
  '--interactive',
  '--disable_suggestion',
  '--history_file=/dev/null',
  '--progress=off',
  '--progress-table=off',
  '--log-level=none',
];

/**
 * Makes standard input a terminal: one side of a new pair, whose other side nobody opens. Discards standard output. Without a terminal,
 * this version of the engine ends the whole process when a client resets a kept-alive connection.
 * @see https://github.com/ClickHouse/ClickHouse/issues/115666
 */
function pretendTerminal(): void {
  // A new descriptor gets the lowest free number.
  closeSync(0);
  if (openSync('/dev/ptmx', 'r+') !== 0) throw new Error('standard input could not be replaced');
  closeSync(1);
  if (openSync('/dev/null', 'w') !== 1) throw new Error('standard output could not be replaced');
}
