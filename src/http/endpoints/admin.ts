// The metrics, on ADMIN_PORT and on the port of a worker of its own (WORKER_ADMIN_PORT).

import type { Log } from '../../log.js';
import type { Route } from '../protocol/server.js';

export function adminRoutes(readMetrics: () => Promise<string>, log: Log): Route[] {
  // Adding up the metrics of all processes takes milliseconds, so callers who ask at the same time share one answer: that of the running
  // sum, not of a next one as with `sharing`, for which they would wait twice as long while Redis is silent.
  let reading: Promise<string> | undefined;
  const readTogether = () => {
    reading ??= readMetrics().finally(() => {
      reading = undefined;
    });
    return reading;
  };
  return [
    {
      method: 'get',
      path: '/metrics',
      handle: (exchange) => {
        exchange.dropBody();
        return readTogether().then(
          (text) => exchange.reply(200, text, [], 'text/plain; version=0.0.4; charset=utf-8'),
          (error: unknown) => {
            log.error({ error }, 'metrics cannot be read');
            exchange.reply(503, '{}');
          },
        );
      },
    },
  ];
}
