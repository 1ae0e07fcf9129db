// The connections to a ClickHouse server. Each new one can be checked before anything else is sent over it, since an address may lead to
// another server from one connection to the next. A connection itself always leads to the same one.

import { once } from 'node:events';
import { Agent } from 'node:http';
import { Agent as TlsAgent } from 'node:https';
import type { Duplex } from 'node:stream';

const connectionsMax = 16;

/**
 * An agent for a server's URL. `check` gets an agent that has only the new connection, and rejects if it must not be used; undefined if
 * it needs no check.
 */
export function createAgent(url: string, check: (sole: Agent) => Promise<unknown> | undefined): Agent {
  const newAgent = (maxSockets: number) =>
    new (url.startsWith('https:') ? TlsAgent : Agent)({ keepAlive: true, maxSockets });
  const agent = newAgent(connectionsMax);
  const connect = agent.createConnection.bind(agent);
  const destroy = agent.destroy.bind(agent);
  const underCheck = new Set<Duplex>();
  agent.createConnection = (options, done) => {
    const connection = connect(options) as Duplex;
    const sole = newAgent(1);
    sole.createConnection = () => connection;
    const checked = check(sole);
    if (checked === undefined) return connection;
    underCheck.add(connection);
    const failed = new Promise<never>((_, reject) => {
      connection.on('error', reject);
      connection.once('close', () => reject(new Error('the connection was closed while it was checked')));
    });
    Promise.race([checked.then(() => takeBack(sole, connection)), failed])
      .finally(() => underCheck.delete(connection))
      .then(
        () => done?.(null, connection),
        (error) => {
          connection.destroy();
          done?.(error, connection);
        },
      );
    return undefined;
  };
  agent.destroy = () => {
    for (const connection of underCheck) connection.destroy();
    destroy();
  };
  return agent;
}

/** Takes an agent's only connection from it. */
async function takeBack(sole: Agent, connection: Duplex): Promise<void> {
  // The answer's end was read just before the agent gets its connection back.
  if (Object.keys(sole.freeSockets).length === 0) await once(sole, 'free');
  connection.emit('agentRemove');
  (connection as Duplex & { ref(): void }).ref();
}
