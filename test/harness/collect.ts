// Requests to POST /api/collect in tests: messages as the client library sends them, and their answers.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';

export type Fields = Readonly<Record<string, unknown>>;

export type MessageAnswer = {
  readonly id?: string;
  readonly status: 'stored' | 'repeat' | 'limited' | 'rejected';
  readonly code?: string;
  readonly field?: string;
  readonly message?: string;
  readonly retry_after?: number;
};

export type CollectReply = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: {
    readonly messages?: readonly MessageAnswer[];
    readonly pairing?: string;
    readonly err?: { readonly code: string; readonly message: string; readonly field?: string };
  };
};

export function newId(): string {
  return randomBytes(16).toString('hex');
}

/** An event of the anonymous user 5. `fields` override its fields; undefined leaves one out. */
export function event(fields: Fields = {}): Fields {
  return { type: 'event', id: newId(), user_id: '5', event: 'Opened', ...fields };
}

export function identify(userId: string, identity: string, fields: Fields = {}): Fields {
  return { type: 'identify', id: newId(), user_id: userId, identity, ...fields };
}

export function userProperties(properties: object | undefined, fields: Fields = {}): Fields {
  return { type: 'user_properties', id: newId(), user_id: '5', properties, ...fields };
}

/** A whole request, sent now. `fields` override its fields. */
export function request(appId: string, messages: readonly unknown[], fields: Fields = {}): Fields {
  return { app_id: appId, sent_at: new Date().toISOString(), messages, ...fields };
}

/** Posts a body as the client library does: text and bytes as they are, all else as JSON. Settles with any answer. */
export async function collect(
  baseUrl: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<CollectReply> {
  const reply = await fetch(`${baseUrl}/api/collect`, {
    method: 'POST',
    headers: { 'content-type': 'text/plain;charset=UTF-8', ...headers },
    body:
      typeof body === 'string' || body instanceof Uint8Array
        ? (body as string | Uint8Array<ArrayBuffer>)
        : JSON.stringify(body),
    signal: AbortSignal.timeout(20_000),
  });
  const text = await reply.text();
  return { status: reply.status, headers: reply.headers, text, json: JSON.parse(text) };
}

/** Sends messages in one request that must be answered 200; settles with their answers. */
export async function answersOf(
  baseUrl: string,
  appId: string,
  messages: readonly unknown[],
  fields: Fields = {},
): Promise<readonly MessageAnswer[]> {
  const reply = await collect(baseUrl, request(appId, messages, fields));
  assert.equal(reply.status, 200, reply.text);
  assert.equal(reply.headers.get('content-type'), 'application/json');
  const answers = reply.json.messages ?? [];
  assert.equal(answers.length, messages.length);
  return answers;
}

/** Like `answersOf`, and every message must be stored. */
export async function storeAll(
  baseUrl: string,
  appId: string,
  messages: readonly Fields[],
  fields: Fields = {},
): Promise<void> {
  assert.deepEqual(
    await answersOf(baseUrl, appId, messages, fields),
    messages.map(({ id }) => ({ id, status: 'stored' })),
  );
}
