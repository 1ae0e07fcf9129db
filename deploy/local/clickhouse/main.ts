// Process entry of the embedded ClickHouse: CLICKHOUSE_PORT and DATA_DIR in, an HTTP server on 127.0.0.1
// out. Statements run on libuv's threads, whose number is fixed before the first module of a process is
// loaded; so unless UV_THREADPOOL_SIZE says enough already, this process only starts the real one with it,
// and shares its life.

import { fileURLToPath } from 'node:url';
import { launch } from '../launch.js';
import { threadPoolSize } from './limits.js';

if (Number(process.env.UV_THREADPOOL_SIZE) >= threadPoolSize) {
  process.env.TZ = 'UTC'; // the engine's time zone
  const { serve } = await import('./serve.js');
  await serve();
} else {
  const program = {
    command: process.execPath,
    args: [...process.execArgv, fileURLToPath(import.meta.url)],
    env: { ...process.env, UV_THREADPOOL_SIZE: String(threadPoolSize) },
  };
  // Where the kernel does not end the child with its parent, the end of the channel does.
  const child = launch(program, ['ignore', 'inherit', 'inherit', 'ipc'], 'KILL');
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => child.kill('SIGTERM'));
  process.on('disconnect', () => child.kill('SIGKILL'));
  child.on('exit', (code) => process.exit(code ?? 1));
}
