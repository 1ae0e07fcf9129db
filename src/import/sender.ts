// Sends batches of records until each record is stored or refused. A request is sent again unchanged if the answer is 429, 500 or 503, or
// does not come from the service; its keys make that harmless. Only the service itself refuses records: a gateway's 403 says nothing about
// rows. A request that is too large for the service or for a gateway is sent in halves.

import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { setTimeout as wait } from 'node:timers/promises';
import { counts, imports } from '../contract/limits.js';
import { aboutSending, isAcknowledgement } from '../contract/outcomes.js';
import { ImportError, type ImportOptions, withoutPassword } from './options.js';

/** The endpoint that a record is sent to. */
export type Lane = 'events' | 'messages';

/** A record as JSON. `isOwnKey`: its key comes from the row or from the export, not from the row's place. */
export type Outgoing = {
  readonly lane: Lane;
  readonly json: string;
  readonly key: string;
  readonly isOwnKey: boolean;
};

/** What happened to a batch. */
export type Sent = {
  readonly stored: number;
  /** Records that were already stored under the same keys. */
  readonly repeats: number;
  readonly refused: readonly Refused[];
};
/** `index`: the record's index in its batch. */
export type Refused = { readonly index: number; readonly reason: string };

/** Thrown if the import is told to stop while a request waits for its next attempt. */
export class Stopped extends Error {}

export type RateLimit = { readonly name: string; readonly rowsMax: number; readonly seconds: number };

/** The status in a receipt. */
export type ReceiptStatus = 'stored' | 'waiting' | 'deleted' | 'unknown';

export type Sender = ReturnType<typeof createSender>;

const firstPauseMs = 250;
const pauseMsMax = 15_000;
const freshTokenPauseMs = 200;

/** Where a request is sent. */
type Path = Lane | 'receipts';
const paths: Readonly<Record<Path, string>> = {
  events: '/api/track',
  messages: '/v1/batch',
  receipts: '/api/v1/receipts',
};
const waitingPauseMs = 1_000;
/** Whether an answer with status 200 comes from the service: checks a field that its answers always have. */
const isOwn: Readonly<Record<Path, (body: Answer['body'] | undefined) => boolean>> = {
  events: isAcknowledgement,
  messages: (body) => typeof body?.success === 'boolean',
  receipts: (body) => Array.isArray(body?.receipts),
};

type Answer = {
  readonly status: number;
  readonly retryAfterMs: number | undefined;
  readonly repeats: number;
  readonly limit?: RateLimit | undefined;
  readonly body: {
    readonly err?: { readonly code?: string; readonly message?: string; readonly field?: string };
    readonly errors?: readonly { readonly index: number; readonly message: string }[];
    readonly success?: boolean;
    readonly receipts?: readonly { readonly idempotency_key: string; readonly status: ReceiptStatus }[];
  };
};

export function createSender(
  { appId, url, writeKey, importToken }: Pick<ImportOptions, 'appId' | 'url' | 'writeKey' | 'importToken'>,
  connections: number,
  stop: AbortSignal,
  nowMs: () => number = () => performance.now(),
) {
  const isSecure = url.startsWith('https:');
  const shown = withoutPassword(url);
  const agent = new (isSecure ? HttpsAgent : HttpAgent)({ keepAlive: true, maxSockets: connections });
  const waits = { limits: 0, service: 0 };
  let limit: RateLimit | undefined;
  /** The size of the smallest body that a gateway has refused as too large. */
  let refusedBytes = Number.POSITIVE_INFINITY;

  function headersOf(lane: Path): Record<string, string> {
    const basic = (name: string, password: string) =>
      `Basic ${Buffer.from(`${name}:${password}`).toString('base64')}`;
    const authorization =
      lane === 'messages'
        ? basic(writeKey ?? appId, '')
        : writeKey === undefined
          ? undefined
          : basic(appId, writeKey);
    return {
      'content-type': 'application/json',
      ...(authorization === undefined ? {} : { authorization }),
      ...(importToken === undefined ? {} : { 'sluice-import': importToken }),
    };
  }

  const heads: Readonly<Record<Lane, string>> = {
    events: `{"app_id":${JSON.stringify(appId)},"events":[`,
    messages: '{"batch":[',
  };

  function bodyOf(lane: Lane, records: readonly string[]): Buffer {
    return Buffer.from(`${heads[lane]}${records.join(',')}]}`);
  }

  function post(lane: Path, body: Buffer, query = ''): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const headers = { ...headersOf(lane), 'content-length': body.length };
      const send = isSecure ? httpsRequest : httpRequest;
      const request = send(`${url}${paths[lane]}${query}`, { method: 'POST', agent, headers }, (reply) => {
        const parts: Buffer[] = [];
        reply.on('data', (part: Buffer) => parts.push(part));
        reply.on('error', reject);
        reply.on('end', () => {
          const body = objectIn(Buffer.concat(parts).toString('utf8'));
          const { statusCode: status = 0, headers: answered } = reply;
          if (status === 200 && !isOwn[lane](body))
            return reject(new Error(`${shown} answers 200, but not as this service does`));
          const seconds = Number(answered['retry-after']);
          resolve({
            status,
            retryAfterMs: seconds > 0 ? seconds * 1000 : undefined,
            repeats: Number(answered['sluice-repeats'] ?? 0),
            limit: limitIn(answered['ratelimit-policy']),
            body: body ?? {},
          });
        });
      });
      request.setTimeout(imports.answerMsMax, () =>
        request.destroy(new Error('the service does not answer')),
      );
      request.on('error', reject);
      request.end(body);
    });
  }

  async function pause(kind: 'limits' | 'service', ms: number): Promise<void> {
    waits[kind] += 1;
    await wait(ms, undefined, { signal: stop }).catch(() => undefined);
    waits[kind] -= 1;
  }

  /**
   * Repeats a request until the service gives a final answer, and settles with it. That the body came too slowly is final if it can be sent
   * in halves.
   */
  async function postUntilAnswered(lane: Path, body: Buffer, canBeHalved = false): Promise<Answer> {
    let failingSinceMs = nowMs();
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(pauseMsMax, pauseMs * 2)) {
      let reason: string;
      if (stop.aborted) throw new Stopped();
      try {
        const answer = await post(lane, body);
        if (answer.status === 429 && isOurs(answer)) {
          limit = answer.limit ?? limit;
          await pause('limits', answer.retryAfterMs ?? pauseMs);
          // The service works, however long it takes.
          failingSinceMs = nowMs();
          pauseMs = firstPauseMs;
          continue;
        }
        const isTooSlow = answer.status === 408 && !canBeHalved;
        if (answer.status === 413 || (answer.status < 500 && isOurs(answer) && !isTooSlow)) return answer;
        reason =
          answer.body.err?.message ??
          `${shown} answers ${answer.status}${isOurs(answer) ? '' : ', but not as this service does'}`;
      } catch (error) {
        reason = (error as Error).message;
      }
      if (nowMs() - failingSinceMs > imports.failingMsMax)
        throw new ImportError(`gave up after 15 minutes: ${reason}`);
      await pause('service', pauseMs * (0.5 + Math.random()));
    }
  }

  /** Settles when every record is stored or refused. Rejects with ImportError when the service refuses the caller. */
  function send(lane: Lane, records: readonly string[]): Promise<Sent> {
    // In some exports one row holds many events.
    if (records.length > counts.bulkEventsMax) return sendHalves(lane, records);
    const sent = bodyOf(lane, records);
    if (sent.length >= refusedBytes && records.length > 1) return sendHalves(lane, records);
    return sendBody(lane, sent, records);
  }

  async function sendBody(lane: Lane, sent: Buffer, records: readonly string[]): Promise<Sent> {
    const answer = await postUntilAnswered(lane, sent, records.length > 1);
    const { status, body, repeats } = answer;
    const isGateway = !isOurs(answer);
    if (status === 200 || (!isGateway && body.errors !== undefined)) {
      const refused = (body.errors ?? []).map(({ index, message }) => ({ index, reason: message }));
      return { stored: records.length - refused.length - repeats, repeats, refused };
    }
    if (isGateway) refusedBytes = Math.min(refusedBytes, sent.length);
    const { code = '', message = `the service answers ${status}` } = body.err ?? {};
    if (status === 401 || aboutSending.has(code)) throw new ImportError(message);
    if (records.length > 1) return sendHalves(lane, records);
    const reason = isGateway
      ? `A gateway before the service answers 413: it accepts no request of ${sent.length} bytes.`
      : message;
    return { stored: 0, repeats: 0, refused: [{ index: 0, reason }] };
  }

  async function sendHalves(lane: Lane, records: readonly string[]): Promise<Sent> {
    const half = Math.ceil(records.length / 2);
    const first = await send(lane, records.slice(0, half));
    const second = await send(lane, records.slice(half));
    return {
      stored: first.stored + second.stored,
      repeats: first.repeats + second.repeats,
      refused: [
        ...first.refused,
        ...second.refused.map(({ index, reason }) => ({ index: index + half, reason })),
      ],
    };
  }

  /**
   * Settles with what has happened to the records with these keys. Asks about waiting records again for as long as some of them are being
   * stored. Rejects as `send` does.
   */
  async function receipts(keys: readonly string[]): Promise<ReadonlyMap<string, ReceiptStatus>> {
    const statusOf = new Map<string, ReceiptStatus>();
    let asked = [...new Set(keys)];
    for (let sinceMs = nowMs(); asked.length > 0; ) {
      for (let from = 0; from < asked.length; from += counts.receiptKeysMax) {
        const idempotency_keys = asked.slice(from, from + counts.receiptKeysMax);
        const body = Buffer.from(JSON.stringify({ app_id: appId, idempotency_keys }));
        const { status, body: answered } = await postUntilAnswered('receipts', body);
        if (status !== 200 || answered.receipts === undefined)
          throw new ImportError(`--verify: ${answered.err?.message ?? `the service answers ${status}`}`);
        for (const receipt of answered.receipts) statusOf.set(receipt.idempotency_key, receipt.status);
      }
      const waiting = asked.filter((key) => statusOf.get(key) === 'waiting');
      if (waiting.length < asked.length) sinceMs = nowMs();
      else if (nowMs() - sinceMs > imports.waitingMsMax) break;
      asked = waiting;
      if (asked.length > 0) await pause('service', waitingPauseMs);
    }
    return statusOf;
  }

  /** Asks whether the service accepts records for the environment. Throws ImportError if it does not. */
  async function probe(): Promise<void> {
    let answer: Answer;
    // `check` keeps the service from counting this as a refused record.
    const ask = () => post('events', bodyOf('events', []), '?check=1');
    try {
      answer = await ask();
      // A new token may not have reached every process of the service yet.
      for (let asked = 0; answer.status === 401 && asked < 10; asked++) {
        await wait(freshTokenPauseMs);
        answer = await ask();
      }
    } catch (error) {
      throw new ImportError(`--url ${shown}: ${(error as Error).message}`);
    }
    const { code, message = '', field } = answer.body.err ?? {};
    if (answer.status === 400 && code === 'empty') return;
    if (answer.status >= 500 || answer.status === 429) return;
    if (!isOurs(answer) || code === undefined)
      throw new ImportError(`--url ${shown}: it answers ${answer.status}, but not as this service does`);
    throw new ImportError(field === 'app_id' ? `--app-id ${appId}: ${message}` : message);
  }

  return {
    probe,
    send,
    receipts,
    /** The rate limit that requests have met; undefined if they have met none. */
    limit: () => limit,
    /** Why requests are waiting; undefined if none is. */
    waiting: () => (waits.limits > 0 ? 'limits' : waits.service > 0 ? 'service' : undefined),
    close: () => agent.destroy(),
  };
}

function objectIn(text: string): Answer['body'] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The limit in a header such as `"bulk_app";q=15000;w=60`. */
function limitIn(policy: unknown): RateLimit | undefined {
  const [, name, rows, seconds] = /^"([^"]+)";q=(\d+);w=(\d+)/.exec(String(policy ?? '')) ?? [];
  return name === undefined ? undefined : { name, rowsMax: Number(rows), seconds: Number(seconds) };
}

/** Whether the service itself answered: its refusals have a code, and only its own form of a 200 counts. */
function isOurs({ status, body }: Answer): boolean {
  return status === 200 || typeof body.err?.code === 'string';
}
