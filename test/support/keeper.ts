// Debian's ZooKeeper, as the keeper of ClickHouse's replicated tables.

import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { delimiter, join } from 'node:path';
import { type Child, startChild } from '../harness/child.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { tempDir } from '../harness/temp-dir.js';
import { programPath } from './deploy-file.js';

export async function startKeeper(): Promise<Child & { readonly port: number }> {
  const dir = tempDir('keeper');
  const port = await freePort();
  const config = { tickTime: 500, dataDir: dir, clientPort: port, clientPortAddress: '127.0.0.1' };
  const lines = Object.entries({ ...config, 'admin.enableServer': false });
  writeFileSync(join(dir, 'zoo.cfg'), lines.map(([name, value]) => `${name}=${value}\n`).join(''));
  const child = await startChild({
    name: 'keeper',
    program: {
      command: 'java',
      args: [
        '-Xmx64m',
        '-XX:TieredStopAtLevel=1',
        '-cp',
        ['zookeeper.jar', 'zookeeper-jute.jar', 'slf4j-api.jar', 'metrics-core.jar', 'snappy-java.jar']
          .map((name) => programPath(name, ['/usr/share/java']))
          .join(delimiter),
        'org.apache.zookeeper.server.ZooKeeperServerMain',
        join(dir, 'zoo.cfg'),
      ],
      env: plainEnvironment(),
      cwd: dir,
    },
    ipc: false,
    healthy: () => answers(port),
    healthyDeadlineMs: 60_000,
  });
  return Object.defineProperties(child as Child & { port: number }, { port: { value: port } });
}

/** Whether the keeper serves clients: it then answers `srvr` with its version. */
async function answers(port: number): Promise<boolean> {
  return new Promise((settle) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('srvr'));
    socket.setTimeout(2_000, () => socket.destroy());
    socket.once('data', (text) => {
      settle(String(text).startsWith('Zookeeper version'));
      socket.destroy();
    });
    socket.once('error', () => settle(false));
    socket.once('close', () => settle(false));
  });
}
