// A small HTTP proxy in front of the API, in the place of a load balancer. It records every request of a browser, even from pages that
// are gone, and answers some requests itself or not at all.

import { once } from 'node:events';
import { type IncomingHttpHeaders, request, type ServerResponse } from 'node:http';
import { bodyServer, listen } from '../harness/listen.js';

export type SentMessage = {
  readonly type: string;
  readonly id: string;
  readonly user_id: string;
  readonly identity?: string;
  readonly session_id?: string;
  readonly event?: string;
  readonly properties?: Readonly<Record<string, string | number>>;
};

export type SeenRequest = {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** When it arrived, by `performance.now()`. */
  readonly atMs: number;
  /** The app_id and the messages of `POST /api/collect`; empty for other requests. */
  readonly appId: string;
  readonly messages: readonly SentMessage[];
  /** The status that the page got; 0 if its connection was closed instead. */
  status?: number;
  /** Whether the page got the API's answer, not one that the front made up. */
  isAnsweredByApi?: boolean;
};

/**
 * `pass`: to the API. `cut`: closes the connection. `lose-reply`: to the API, then closes the connection instead of
 * answering.
 */
export type Treatment =
  | 'pass'
  | 'cut'
  | 'lose-reply'
  | { readonly status: number; readonly headers?: Readonly<Record<string, string>>; readonly body?: string };

export type Treat = (request: SeenRequest) => Treatment | Promise<Treatment>;

/** Listens on a loopback port of its own in front of `target`, such as `http://127.0.0.1:8080`. */
export async function startCollectFront(target: string) {
  const seen: SeenRequest[] = [];
  const treatments = new Map<string, Treat>();

  const server = bodyServer((incoming, reply, body) => {
    const text = body.toString();
    const { url: path = '', method = '', headers } = incoming;
    const batch = batchOf(method, path, text);
    const one: SeenRequest = { method, path, headers, text, atMs: performance.now(), ...batch };
    seen.push(one);
    void answer(one, reply).catch(() => reply.destroy());
  });

  async function answer(one: SeenRequest, reply: ServerResponse): Promise<void> {
    const treat = treatments.get(one.appId) ?? treatments.get(one.path);
    const treatment = (await treat?.(one)) ?? 'pass';
    if (treatment === 'cut') {
      one.status = 0;
      reply.destroy();
    } else if (typeof treatment === 'object') {
      one.status = treatment.status;
      const headers = { 'access-control-allow-origin': '*', ...treatment.headers };
      reply.writeHead(treatment.status, headers).end(treatment.body ?? '');
    } else await pass(one, reply, treatment === 'lose-reply');
  }

  async function pass(one: SeenRequest, reply: ServerResponse, loseReply: boolean): Promise<void> {
    const url = new URL(one.path, target);
    const forwarded = request(url, { method: one.method, headers: { ...one.headers, host: url.host } });
    forwarded.end(one.text);
    const [answered] = await once(forwarded, 'response');
    const chunks: Buffer[] = [];
    for await (const chunk of answered) chunks.push(chunk);
    one.status = loseReply ? 0 : answered.statusCode;
    one.isAnsweredByApi = !loseReply;
    if (loseReply) reply.destroy();
    else {
      const { 'transfer-encoding': _, ...headers } = answered.headers;
      reply.writeHead(answered.statusCode, headers).end(Buffer.concat(chunks));
    }
  }

  const { url, stop } = await listen(server);
  return {
    url,
    seen,
    /** The batches of one environment, including batches that the front answered itself. */
    batches: (appId: string): readonly SeenRequest[] => seen.filter((one) => one.appId === appId),
    /** Decides from now on what happens to the requests of one environment; `pass` at the start. */
    treat: (appId: string, treat: Treat) => void treatments.set(appId, treat),
    /** Decides the same for a path, such as `/sdk.js`. */
    treatPath: (path: string, treat: Treat) => void treatments.set(path, treat),
    close: stop,
  };
}

function batchOf(method: string, path: string, text: string): Pick<SeenRequest, 'appId' | 'messages'> {
  if (method !== 'POST' || path !== '/api/collect') return { appId: '', messages: [] };
  const { app_id, messages } = JSON.parse(text) as { app_id: string; messages: SentMessage[] };
  return { appId: app_id, messages };
}
