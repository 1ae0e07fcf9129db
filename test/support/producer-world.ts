// The library for servers, with a server that answers as the test says, and the reports of the library.

import {
  createSluice,
  type Dropped,
  type Problem,
  type Refusal,
  type Sluice,
  type SluiceOptions,
} from '../../src/libraries/producer/index.js';
import { startAnsweringServer } from './answering-server.js';

export type ProducerWorld = Awaited<ReturnType<typeof startProducerWorld>>;

export async function startProducerWorld() {
  let server = await startAnsweringServer();
  const problems: Problem[] = [];
  const dropped: Dropped[] = [];
  const refused: Refusal[] = [];
  return {
    server,
    /** Starts another server in place of this one. Nothing that earlier clients sent arrives there, however late. */
    replaceServer: async () => {
      server.close();
      server = await startAnsweringServer();
      return server;
    },
    problems,
    dropped,
    refused,
    create: (options: Partial<SluiceOptions> = {}) =>
      createSluice({
        appId: '1',
        baseUrl: server.baseUrl,
        intervalMs: 5,
        onProblem: (problem) => problems.push(problem),
        onDropped: (one) => dropped.push(one),
        onRefused: (one) => refused.push(one),
        ...options,
      }),
    /** The numbers of the events that arrived, by request. */
    numbers: () =>
      server.arrived.map(({ body }) =>
        (body.events ?? []).map(({ properties }) => (properties as { n: number }).n),
      ),
  };
}

export function track(client: Sluice, n: number, identity = `user-${n}`, text = ''): Promise<void> {
  return client.track({ event: 'E', identity, properties: { n, text } });
}
