// Faults of the connections between processes: they are reset, cut, silent or slow, or lose replies.

import type { TcpProxy } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { type AnyWorld, type Fault, hold } from './fault.js';
import type { Link } from './parts.js';
import type { Random } from './random.js';

type Mode = {
  readonly name: string;
  readonly run: (proxy: TcpProxy, random: Random) => Promise<boolean>;
};

const modes: readonly Mode[] = [
  {
    name: 'reset',
    run: async (proxy, random) => {
      let connections = 0;
      for (let left = random.int(1, 5); left > 0; left -= 1) {
        connections += proxy.connections;
        proxy.reset();
        await hold(random.int(20, 400));
      }
      return connections > 0;
    },
  },
  lasting('cut', [200, 1_500], (proxy) => proxy.cut()),
  lasting('silence', [400, 2_500], (proxy) => proxy.blackHole()),
  lasting('slow', [500, 2_000], (proxy, random) => proxy.delay(random.int(20, 400)), 'bytesSent'),
  lasting('lost replies', [100, 1_500], (proxy) => proxy.dropReplies(), 'bytesReceived'),
];

/** A mode that took effect if something was connected when it began, or if this many bytes grew meanwhile. */
function lasting(
  name: string,
  [minMs, maxMs]: readonly [number, number],
  begin: (proxy: TcpProxy, random: Random) => void,
  counted?: 'bytesSent' | 'bytesReceived',
): Mode {
  return {
    name,
    run: async (proxy, random) => {
      const before = counted === undefined ? 0 : proxy[counted];
      const { connections } = proxy;
      begin(proxy, random);
      await hold(random.int(minMs, maxMs));
      return counted === undefined ? connections > 0 : proxy[counted] > before;
    },
  };
}

const between = ['api-redis', 'worker-redis', 'worker-clickhouse'] as const;

export const networkFaults: readonly Fault<AnyWorld>[] = between.flatMap((link) =>
  faultsOf(link, `between ${link.replace('-', ' and ')}`),
);

/** The same faults of the connections to each of three servers. */
export const networkFaultsOfThree: readonly Fault<AnyWorld>[] = (['redis', 'clickhouse'] as const).flatMap(
  (kind) => ([1, 2, 3] as const).flatMap((number) => faultsOf(`to-${kind}-${number}`, `to ${kind}`)),
);

function faultsOf(link: Link, where: string): Fault<AnyWorld>[] {
  return modes.map(({ name, run }) => ({
    name: `${name} ${where}`,
    touches: [link],
    run: async ({ links }, random) => {
      const proxy = links.get(link);
      if (proxy === undefined) throw new Error(`there is no proxy ${link}`);
      await until(() => proxy.connections > 0, {
        deadlineMs: 3_000,
        what: 'something is connected',
      }).catch(() => undefined);
      try {
        return await run(proxy, random);
      } finally {
        proxy.pass();
      }
    },
  }));
}
