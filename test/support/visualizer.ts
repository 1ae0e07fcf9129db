// A device and a page of the Event Visualizer, simulated by real requests and a real WebSocket.

import { request } from 'node:http';
import { json } from 'node:stream/consumers';
import { WebSocket } from 'ws';
import { until } from '../harness/wait.js';

export type Pairing = { readonly pairing: string; readonly code: string; readonly expires_in: number };

export type Answer = { readonly status: number; readonly body: Record<string, unknown> };

/** Posts JSON as a page of another site does; `from` is the loopback address of the sender. */
export function post(url: string, body: unknown, from = '127.0.0.1'): Promise<Answer> {
  return new Promise((settle, reject) => {
    const sent = request(url, {
      method: 'POST',
      localAddress: from,
      headers: { 'content-type': 'text/plain;charset=UTF-8' },
      agent: false,
    });
    sent.on('error', reject);
    sent.on('response', (reply) => {
      const { statusCode: status = 0 } = reply;
      json(reply).then((its) => settle({ status, body: its as Answer['body'] }), reject);
    });
    sent.end(typeof body === 'string' ? body : JSON.stringify(body));
  });
}

/** Begins a pairing; fails if it is refused. A busy API may answer 503; then asks again. */
export async function beginPairing(baseUrl: string, appId: string, from?: string): Promise<Pairing> {
  const begin = async () => {
    const answer = await post(`${baseUrl}/api/visualizer/pairings`, { app_id: appId }, from);
    return answer.status !== 503 && answer;
  };
  const { status, body } = await until(begin, 'a pairing is begun or refused');
  if (status !== 201) throw new Error(`no pairing: ${status} ${JSON.stringify(body)}`);
  return body as Pairing;
}

export function stopPairing(baseUrl: string, appId: string, pairing: string): Promise<Answer> {
  return post(`${baseUrl}/api/visualizer/pairings/stop`, { app_id: appId, pairing });
}

/** Sends messages of a device. */
export function collect(
  baseUrl: string,
  appId: string,
  messages: readonly object[],
  pairing?: string,
): Promise<Answer> {
  const body = { app_id: appId, sent_at: new Date().toISOString(), messages, pairing };
  return post(`${baseUrl}/api/collect`, body);
}

export type Said = { readonly type: string } & Readonly<Record<string, unknown>>;

export type LivePage = ReturnType<typeof openLivePage>;

/** Connects to /visualizer/live, from a loopback address if one is given, and sends `hello`, unless that is undefined. */
export function openLivePage(
  adminUrl: string,
  hello: unknown,
  headers: Readonly<Record<string, string>> = {},
  from?: string,
) {
  const url = `${adminUrl.replace(/^http/, 'ws')}/visualizer/live`;
  const socket = new WebSocket(url, from === undefined ? { headers } : { headers, localAddress: from });
  /** Everything that the service has sent, in order. */
  const said: Said[] = [];
  let closed: { code: number; reason: string } | undefined;
  socket.on('open', () => {
    if (hello !== undefined) socket.send(typeof hello === 'string' ? hello : JSON.stringify(hello));
  });
  socket.on('message', (data: Buffer) => said.push(JSON.parse(data.toString('utf8')) as Said));
  socket.on('close', (code, reason) => {
    closed = { code, reason: reason.toString('utf8') };
  });
  // A connection that is refused or dropped counts as closed.
  socket.on('error', () => undefined);
  /** The device's messages that have been shown so far, in order. */
  const shown = () =>
    said.flatMap((words) => (words.type === 'batch' ? (words.messages as Record<string, unknown>[]) : []));
  return {
    socket,
    said,
    closed: () => closed,
    heard: async (type: string, deadlineMs = 60_000) => {
      const what = `the service sends ${type}`;
      try {
        return await until(() => said.find((words) => words.type === type), { deadlineMs, what });
      } catch (error) {
        const heard = `${JSON.stringify(said).slice(0, 500)}, ${JSON.stringify(closed)}`;
        throw new Error(`${what}; it sent ${heard}`, { cause: error });
      }
    },
    shown,
    untilShown: async (count: number) => {
      await until(() => shown().length >= count, `${count} messages are shown`);
      return shown();
    },
    untilClosed: (deadlineMs = 60_000) =>
      until(() => closed, { deadlineMs, what: 'the connection is closed' }),
  };
}
