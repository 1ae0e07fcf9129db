// Sends a request over a kept-alive connection, and settles with the answer. Never rejects, since a failure is an answer too.

import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { promisify } from 'node:util';
import { gzip as gzipCallback } from 'node:zlib';
import { producerLimits as limits } from './limits.js';

export type Call = {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** The path below the base URL. */
  readonly path: string;
  readonly body?: Body;
  readonly authorization?: string | undefined;
};

export type Body = { readonly bytes: Buffer; readonly encoding: 'gzip' | undefined };

export type Answer = {
  /** The HTTP status; 0 if no answer came, with the reason in `fault`. */
  readonly status: number;
  readonly fault?: string;
  readonly text: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
};

export type Transport = ReturnType<typeof createTransport>;

type TransportOptions = {
  readonly baseUrl: string;
  readonly requestMs: number;
  readonly connectionsMax: number;
  /**
   * Whether connections are kept for later requests; default true. A request that finds its kept connection closed is sent again, although
   * the service may have carried it out.
   */
  readonly keepAlive?: boolean;
};

const compress = promisify(gzipCallback);

/** A body, compressed if that is worthwhile: at the fastest level, which takes 5 µs of CPU per kilobyte, outside of the main thread. */
export async function bodyOf(text: string, gzip: boolean): Promise<Body> {
  const bytes = Buffer.from(text);
  if (!gzip || bytes.length < limits.gzipBytesMin) return { bytes, encoding: undefined };
  return { bytes: await compress(bytes, { level: 1 }), encoding: 'gzip' };
}

export function createTransport({ baseUrl, requestMs, connectionsMax, keepAlive = true }: TransportOptions) {
  const isSecure = baseUrl.startsWith('https:');
  const agentOptions = { keepAlive, maxSockets: connectionsMax };
  const agent = isSecure ? new HttpsAgent(agentOptions) : new HttpAgent(agentOptions);
  const underWay = new Set<() => void>();
  let isClosed = false;

  function attempt(call: Call): Promise<Answer & { readonly wasStale: boolean }> {
    return new Promise((settle) => {
      const { method, path, body, authorization } = call;
      const headers: Record<string, string | number> = { 'user-agent': 'sluice-server' };
      if (body !== undefined) {
        headers['content-type'] = 'application/json';
        headers['content-length'] = body.bytes.length;
        if (body.encoding !== undefined) headers['content-encoding'] = body.encoding;
      } else if (method !== 'GET' && method !== 'DELETE') headers['content-length'] = 0;
      if (authorization !== undefined) headers.authorization = authorization;
      const sent = (isSecure ? httpsRequest : httpRequest)(`${baseUrl}${path}`, { method, headers, agent });
      const abort = () => sent.destroy(new Error('closed'));
      const timer = setTimeout(() => sent.destroy(new Error('timeout')), requestMs);
      underWay.add(abort);

      function end(answer: Answer, wasStale = false): void {
        clearTimeout(timer);
        underWay.delete(abort);
        settle({ ...answer, wasStale });
      }
      function fail(error: NodeJS.ErrnoException): void {
        const fault = error.code ?? error.message;
        // The other side closed the idle connection at the moment when this request was sent.
        end(
          { status: 0, fault, text: '', headers: {} },
          sent.reusedSocket && /^E(CONNRESET|PIPE)$/.test(fault),
        );
      }
      sent.once('error', fail);
      sent.once('response', (reply) => {
        const pieces: Buffer[] = [];
        let bytes = 0;
        reply.on('data', (piece: Buffer) => {
          bytes += piece.length;
          if (bytes > limits.answerBytesMax) sent.destroy(new Error('answer_too_large'));
          else pieces.push(piece);
        });
        reply.once('error', fail);
        reply.once('end', () => {
          const text = Buffer.concat(pieces).toString('utf8');
          end({ status: reply.statusCode ?? 0, text, headers: reply.headers });
        });
      });
      sent.end(body?.bytes);
    });
  }

  return {
    async send(call: Call): Promise<Answer> {
      if (isClosed) return { status: 0, fault: 'closed', text: '', headers: {} };
      const answer = await attempt(call);
      return answer.wasStale && !isClosed ? attempt(call) : answer;
    },
    /** Ends all requests and connections. Later calls settle with a fault. */
    close(): void {
      isClosed = true;
      for (const abort of [...underWay]) abort();
      agent.destroy();
    },
  };
}
