// node:http directly into ClickHouse: each request is an insert, which ClickHouse batches with others (`async_insert`). The answer
// comes when ClickHouse has stored it. No queue, no limits, no keys.

import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import { createClient } from '@clickhouse/client';
import { peerDatabase, peerTable } from './peer-names.js';

type Event = { event: string; identity: string; timestamp?: string; properties?: object };
type Body = Event & { app_id: string; events?: Event[] };

const clickhouse = createClient({
  url: process.env.CLICKHOUSE_URL ?? '',
  database: peerDatabase,
  // Each request waits for its insert.
  max_open_connections: 256,
  clickhouse_settings: { async_insert: 1, wait_for_async_insert: 1, date_time_input_format: 'best_effort' },
});

async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const answer = (status: number, text: string) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(text);
  if (request.method !== 'POST') return void answer(405, '');
  try {
    const body = (await json(request)) as Body;
    const values = (body.events ?? [body]).map(({ event, identity, timestamp, properties }) => ({
      app_id: body.app_id,
      event_id: randomUUID(),
      event,
      identity,
      time: timestamp ?? new Date().toISOString(),
      properties: properties ?? {},
    }));
    if (values.some(({ event, identity }) => typeof event !== 'string' || typeof identity !== 'string')) {
      return void answer(400, '{"err":{}}');
    }
    await clickhouse.insert({ table: peerTable, values, format: 'JSONEachRow' });
    answer(200, '{}');
  } catch {
    answer(503, '{"err":{}}');
  }
}

createServer((request, response) => void receive(request, response)).listen(
  Number(process.env.PORT),
  '127.0.0.1',
);
