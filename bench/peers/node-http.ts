// node:http directly into ClickHouse: each request's events wait for the next insert, at most 50 ms, and are answered
// when ClickHouse has them. No queue, no limits, no keys.

import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createClient } from '@clickhouse/client';
import { peerDatabase, peerTable } from './peer-names.js';

type Event = { event: string; identity: string; timestamp?: string; properties?: object };

const batchAgeMs = 50;

const clickhouse = createClient({ url: process.env.CLICKHOUSE_URL ?? '', database: peerDatabase });
let rows: object[] = [];
let answers: ((stored: boolean) => void)[] = [];
let timer: NodeJS.Timeout | undefined;

async function flush(): Promise<void> {
  timer = undefined;
  const [values, waiting] = [rows, answers];
  [rows, answers] = [[], []];
  try {
    await clickhouse.insert({
      table: peerTable,
      values,
      format: 'JSONEachRow',
      clickhouse_settings: { date_time_input_format: 'best_effort' },
    });
    for (const answer of waiting) answer(true);
  } catch {
    for (const answer of waiting) answer(false);
  }
}

function receive(request: IncomingMessage, response: ServerResponse): void {
  if (request.method !== 'POST') {
    response.writeHead(405).end();
    return;
  }
  const parts: Buffer[] = [];
  request.on('data', (part: Buffer) => parts.push(part));
  request.on('end', () => {
    const body = JSON.parse(Buffer.concat(parts).toString()) as { app_id: string; events?: Event[] } & Event;
    for (const { event, identity, timestamp, properties } of body.events ?? [body]) {
      if (typeof event !== 'string' || typeof identity !== 'string') {
        response.writeHead(400).end('{"err":{}}');
        return;
      }
      rows.push({
        app_id: body.app_id,
        event_id: randomUUID(),
        event,
        identity,
        time: timestamp ?? new Date().toISOString(),
        properties: properties ?? {},
      });
    }
    answers.push((stored) => {
      response.writeHead(stored ? 200 : 503, { 'content-type': 'application/json' });
      response.end(stored ? '{}' : '{"err":{}}');
    });
    if (timer === undefined) timer = setTimeout(() => void flush(), batchAgeMs);
  });
}

createServer(receive).listen(Number(process.env.PORT), '127.0.0.1');
