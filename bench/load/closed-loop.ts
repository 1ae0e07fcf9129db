// Sends as fast as the answers come, by autocannon. Only to a service of the session: autocannon checks no certificates, and tries a
// connection that was refused again without a pause.

import autocannon from 'autocannon';
import { answerMsMax, type Ending, endingOf, endings } from './second.js';

export type LoopOptions = {
  readonly url: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly nextBody: () => Buffer;
  /** The maximum of connections, and so of requests under way. */
  readonly connections: number;
  /** May be Infinity: then until `stop`, or until the last of `requests`. */
  readonly seconds: number;
  /** The maximum of requests. */
  readonly requests?: number;
  /** The body of a good answer; null accepts any answer with status 200. */
  readonly answer: string | null;
  /** Ends the load early; requests under way are still answered. */
  readonly stop?: AbortSignal;
};

/** What autocannon counts for a connection, and compares before each of its requests. */
type Connection = autocannon.Client & { readonly reqsMade: number; responseMax: number };

/** autocannon looks this often whether all connections have ended; its own second would count as part of the run. */
const lookEveryMs = 10;

/** Sends until the end, the last request or the first failure; settles when all that was sent is answered or has failed. */
export function sendInLoop(options: LoopOptions, count: (ending: Ending, ms: number) => void): Promise<void> {
  const { url, path, headers, nextBody, connections, requests = Number.MAX_SAFE_INTEGER, answer } = options;
  const endsAt = performance.now() + options.seconds * 1_000;
  let ending: Ending = endings.connection;
  /** Requests of which no ending was counted. autocannon itself says nothing about one whose connection was closed without an answer. */
  let open = 0;
  const end = (how: Ending, ms: number) => {
    open -= 1;
    count(how, ms);
  };
  const request: autocannon.Request = {
    method: 'POST',
    path,
    headers: { ...headers },
    setupRequest: (made) => {
      open += 1;
      return { ...made, body: nextBody() };
    },
    onResponse: (status, body) => {
      ending = endingOf(status, body, answer);
    },
  };
  return new Promise((settle, reject) => {
    const load = autocannon(
      {
        url,
        connections: Math.min(connections, requests),
        amount: requests,
        timeout: answerMsMax / 1_000,
        bailout: 1,
        sampleInt: lookEveryMs,
        requests: [request],
      },
      (error) => {
        if (error) return reject(error);
        while (open > 0) end(endings.connection, 0);
        settle();
      },
    );
    load.on('response', (client, _status, _bytes, ms) => {
      end(ending, ms);
      // At an end by time autocannon would cut off what is under way.
      const connection = client as Connection;
      if (performance.now() >= endsAt || options.stop?.aborted) connection.responseMax = connection.reqsMade;
    });
    load.on('reqError', ({ message }: Error) =>
      message === 'request timed out' ? end(endings.timeout, answerMsMax) : end(endings.connection, 0),
    );
  });
}
