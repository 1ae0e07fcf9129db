// One request that is repeated until it is acknowledged, as a producer does that must not lose anything.

import { Agent, request } from 'node:http';
import { request as requestTls, Agent as TlsAgent } from 'node:https';
import { BenchError } from '../failure.js';

const requestMsMax = 30_000;

/** Keeps this many connections to the URL's server. */
export function createAgent(url: string, connections: number): Agent {
  const options = { keepAlive: true, maxSockets: connections };
  return url.startsWith('https:') ? new TlsAgent(options) : new Agent(options);
}

/**
 * Settles with how often it had to be repeated. Rejects if it is refused for good, or if its outcome is unknown and its
 * events have no keys.
 */
export async function sendUntilAcknowledged(
  url: string,
  agent: Agent,
  body: Buffer,
  keys: boolean,
): Promise<number> {
  for (let repeats = 0; ; repeats += 1) {
    const answer = await send(url, agent, body);
    if (answer.status === 200 && answer.body === '{}') return repeats;
    const code = answer.status === 200 ? 'partly_refused' : codeOf(answer.body);
    const nothingStored = answer.status === 503 && code === 'overloaded';
    if (!nothingStored && !(keys && (answer.status === 0 || code === 'unknown'))) {
      throw new BenchError(`a request was answered ${answer.status}: ${answer.body.slice(0, 500)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, answer.retryAfterSeconds * 1000));
  }
}

type Answer = { readonly status: number; readonly body: string; readonly retryAfterSeconds: number };

/** Status 0: no answer, and nobody knows whether the events were stored. */
function send(url: string, agent: Agent, body: Buffer): Promise<Answer> {
  return new Promise((resolve) => {
    const silent = (error: Error) => resolve({ status: 0, body: error.message, retryAfterSeconds: 1 });
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const make = url.startsWith('https:') ? requestTls : request;
    const sent = make(url, { method: 'POST', agent, headers, timeout: requestMsMax }, (reply) => {
      const parts: Buffer[] = [];
      reply.on('data', (part: Buffer) => parts.push(part));
      reply.on('error', silent);
      reply.on('end', () =>
        resolve({
          status: reply.statusCode ?? 0,
          body: Buffer.concat(parts).toString(),
          retryAfterSeconds: Number(reply.headers['retry-after'] ?? 1),
        }),
      );
    });
    sent.on('timeout', () => sent.destroy(new Error(`no answer within ${requestMsMax} ms`)));
    sent.on('error', silent);
    sent.end(body);
  });
}

function codeOf(body: string): string {
  try {
    return (JSON.parse(body) as { err?: { code?: string } }).err?.code ?? '';
  } catch {
    // Something other than the API answered.
    return '';
  }
}
