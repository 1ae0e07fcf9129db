// Process entry of the embedded ClickHouse: CLICKHOUSE_PORT and DATA_DIR in, an HTTP server on 127.0.0.1
// out. Statements run on libuv's threads, whose number is fixed before a process begins, so the process
// starts itself again with UV_THREADPOOL_SIZE set when it is not.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { threadPoolSize } from './limits.js';

if (Number(process.env.UV_THREADPOOL_SIZE ?? 4) >= threadPoolSize) {
  const { serve } = await import('./serve.js');
  await serve();
} else {
  startAgain();
}

/** Runs this file in a child with enough threads; its life is this process's life. */
function startAgain(): void {
  const child = spawn(process.execPath, [...process.execArgv, fileURLToPath(import.meta.url)], {
    env: { ...process.env, UV_THREADPOOL_SIZE: String(threadPoolSize) },
    // The channel tells the child when this process is gone, also after a kill -9.
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => child.kill('SIGTERM'));
  child.on('exit', (code, signal) => process.exit(signal === null ? (code ?? 1) : 1));
}
