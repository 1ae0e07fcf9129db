// Simulates a machine for which there is no embedded ClickHouse: a process with these NODE_OPTIONS does not find the
// package.

const preload = `
  import Module from 'node:module';
  const resolve = Module._resolveFilename;
  Module._resolveFilename = (name, ...rest) => {
    if (name.startsWith('@chdb/')) throw Object.assign(new Error('absent'), { code: 'MODULE_NOT_FOUND' });
    return resolve(name, ...rest);
  };`;

export const withoutEngine = `--import data:text/javascript,${encodeURIComponent(preload)}`;
