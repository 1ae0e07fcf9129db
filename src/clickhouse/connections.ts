// The connections to a ClickHouse server. Each new one can be checked before anything else is sent over it, since an address may lead to
// another server from one connection to the next. A connection itself always leads to the same one.

import { once } from 'node:events';
import { Agent, type ClientRequest, type ClientRequestArgs } from 'node:http';
import { Agent as TlsAgent } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

const connectionsMax = 16;

type Done = (error: Error | null, connection: Duplex) => void;

/**
 * An agent for a server's URL. `check` may ask for an agent that has only the new connection, and rejects if the connection must not be
 * used; undefined if it needs no check.
 */
export function createAgent(
  url: string,
  check: (soleAgent: () => Agent) => Promise<unknown> | undefined,
): Agent {
  const newAgent = (maxSockets: number) =>
    new (url.startsWith('https:') ? TlsAgent : Agent)({ keepAlive: true, maxSockets });
  const agent = newAgent(connectionsMax);
  const connect = agent.createConnection.bind(agent);
  const destroy = agent.destroy.bind(agent);
  const underCheck = new Set<Duplex>();
  /** Those who wait for a connection. The agent's own queue would not count connections under check, so it is not used with checks. */
  const waiting: { readonly options: ClientRequestArgs; readonly done: Done }[] = [];
  const hasRoom = () =>
    underCheck.size + countIn(agent.sockets) + countIn(agent.freeSockets) < connectionsMax;

  function open(options: ClientRequestArgs, done: Done): Duplex | undefined {
    const connection = connect(options) as Duplex;
    let sole: Agent | undefined;
    const checked = check(() => {
      sole = newAgent(1);
      sole.createConnection = () => connection;
      return sole;
    });
    if (checked === undefined) return connection;
    agent.maxSockets = Number.POSITIVE_INFINITY;
    underCheck.add(connection);
    const failed = new Promise<never>((_, reject) => {
      connection.on('error', reject);
      connection.once('close', () => reject(new Error('the connection was closed while it was checked')));
    });
    Promise.race([checked.then(() => sole && takeBack(sole, connection)), failed])
      .finally(() => underCheck.delete(connection))
      .then(
        () => done(null, connection),
        (error) => {
          connection.destroy();
          done(error, connection);
        },
      );
    // Later, when the agent has noticed it too.
    connection.once('close', () => setImmediate(openNext));
    return undefined;
  }

  function openNext(): void {
    const next = hasRoom() ? waiting.shift() : undefined;
    if (next === undefined) return;
    const unchecked = open(next.options, next.done);
    if (unchecked !== undefined) next.done(null, unchecked);
  }

  agent.createConnection = (options, done: Done = () => undefined) => {
    if (hasRoom()) return open(options, done);
    waiting.push({ options, done });
    return undefined;
  };
  agent.on('free', (connection: Duplex) => {
    const isIdle = Object.values(agent.freeSockets).some((idle) => idle?.some((each) => each === connection));
    const next = isIdle ? waiting.shift() : undefined;
    if (next === undefined) return;
    detach(agent, connection);
    next.done(null, connection);
  });
  agent.destroy = () => {
    for (const connection of underCheck) connection.destroy();
    destroy();
  };
  return agent;
}

function countIn(connections: Agent['sockets']): number {
  return Object.values(connections).reduce((sum, each) => sum + (each?.length ?? 0), 0);
}

/** Takes an agent's only connection from it. */
async function takeBack(sole: Agent, connection: Duplex): Promise<void> {
  // The answer's end was read just before the agent gets its connection back.
  if (countIn(sole.freeSockets) === 0) await once(sole, 'free');
  detach(sole, connection);
}

/** Takes an idle connection from its agent. Otherwise the agent would give it to another request too. */
function detach(agent: Agent, connection: Duplex): void {
  for (const idle of Object.values(agent.freeSockets)) {
    const at = idle?.indexOf(connection as Socket) ?? -1;
    if (at !== -1) idle?.splice(at, 1);
  }
  // This removes the agent's listeners, and connections that are in use.
  connection.emit('agentRemove');
  // Ends what the agent did to it while it was idle. No request is known yet.
  agent.reuseSocket(connection, {} as ClientRequest);
}
