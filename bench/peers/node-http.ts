// node:http directly into ClickHouse: each request is an insert, which ClickHouse batches with others (`async_insert`). The answer is sent
// when ClickHouse has stored it. No queue, no limits, no keys.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import { connectPeerTable, type PeerBody, rowsOf } from './shared.js';

const insert = connectPeerTable({ async_insert: 1, wait_for_async_insert: 1 });

async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const answer = (status: number, text: string) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(text);
  if (request.method !== 'POST') return void answer(405, '');
  try {
    const body = (await json(request)) as PeerBody;
    const events = 'events' in body ? body.events : [body];
    if (events.some(({ event, identity }) => typeof event !== 'string' || typeof identity !== 'string')) {
      return void answer(400, '{"err":{}}');
    }
    await insert(rowsOf(body));
    answer(200, '{}');
  } catch {
    answer(503, '{"err":{}}');
  }
}

createServer((request, response) => void receive(request, response)).listen(
  Number(process.env.PORT),
  '127.0.0.1',
);
