// Counts from requests and answers how many records the service must have stored, by table.

import type { RawReply } from '../harness/raw-http.js';
import { type ReadRequest, readDocument, readRequest } from './framing.js';

export type Table = 'events' | 'user_properties' | 'user_identities';

export type Tally = {
  /** Acknowledged records, each of which must be stored once. */
  readonly accepted: Record<Table, number>;
  /** Records that may be stored: of requests without an answer, among others. */
  readonly perhaps: Record<Table, number>;
  /** Acknowledged requests that by the standard end elsewhere or not at all. */
  loose: number;
  /**
   * Counts one case: the bytes that were sent on a connection since it was last in step, and the replies to them. Returns
   * what is wrong if an answer acknowledges something that is not a request or not a document.
   */
  count(bytes: Buffer, replies: readonly RawReply[]): string | undefined;
};

type Element = Readonly<Record<string, unknown>>;

const tableOfPath: Readonly<Record<string, Table | 'collect'>> = {
  '/api/track': 'events',
  '/api/add_user_properties': 'user_properties',
  '/api/v1/identify': 'user_identities',
  '/api/collect': 'collect',
};
/** Messages of Segment's protocol are not read in detail: each may become a row of each table or none. */
const segmentPath = /^\/v1\//;
export const takesRecords = (path: string) => path in tableOfPath || segmentPath.test(path);
const tableOfType: Readonly<Record<string, Table>> = {
  event: 'events',
  user_properties: 'user_properties',
  identify: 'user_identities',
};
/** How many records an acknowledged request that cannot be read may hold at most: as many as the largest valid one. */
const looseRecordsMax = 3;

export function createTally(): Tally {
  const accepted = { events: 0, user_properties: 0, user_identities: 0 };
  const perhaps = { events: 0, user_properties: 0, user_identities: 0 };
  const keys = new Set<string>();

  function add(table: Table | undefined, key: unknown): void {
    if (table === undefined) return;
    if (key !== undefined && keys.has(`${table} ${String(key)}`)) return;
    if (key !== undefined) keys.add(`${table} ${String(key)}`);
    accepted[table] += 1;
  }

  function countAccepted(kind: Table | 'collect', document: Element, reply: RawReply): void {
    const answer = JSON.parse(reply.body) as {
      errors?: { index: number }[];
      messages?: { status: string }[];
    };
    const elements = elementsOf(document);
    const refused = new Set(answer.errors?.map(({ index }) => index));
    for (const [index, element] of elements.entries()) {
      if (kind === 'collect') {
        const stored = answer.messages?.[index]?.status === 'stored';
        if (stored) add(tableOfMessage(element), undefined);
      } else if (!refused.has(index)) {
        add(kind, element.idempotency_key);
      }
    }
  }

  function countPerhaps(request: ReadRequest): void {
    const document = readDocument(request.body);
    if (segmentPath.test(request.path)) countSegment(document);
    const kind = tableOfPath[request.path];
    if (kind === undefined || document === undefined) return;
    for (const element of elementsOf(document)) {
      const table = kind === 'collect' ? tableOfMessage(element) : kind;
      if (table !== undefined) perhaps[table] += 1;
    }
  }

  function countSegment(document: Element | undefined): void {
    for (const table of Object.keys(perhaps) as Table[])
      perhaps[table] += document === undefined ? 0 : elementsOf(document).length;
  }

  const tally: Tally = {
    accepted,
    perhaps,
    loose: 0,
    count: (bytes, replies) => {
      const answers = replies.filter(({ status }) => status >= 200);
      let at = 0;
      for (const reply of answers) {
        const request = readRequest(bytes, at);
        if (request === undefined) {
          if (reply.status >= 300) continue;
          tally.loose += 1;
          for (const table of Object.keys(perhaps) as Table[]) perhaps[table] += looseRecordsMax;
          continue;
        }
        at = request.end;
        const kind = tableOfPath[request.path];
        if (reply.status === 503) countPerhaps(request);
        if (reply.status !== 200) continue;
        if (segmentPath.test(request.path)) {
          if (request.method === 'POST') {
            const document = readDocument(request.body);
            if (document === undefined) return 'acknowledges a body that is not a JSON document in UTF-8';
            countSegment(document);
          }
          continue;
        }
        if (kind === undefined) continue;
        const document = readDocument(request.body);
        if (document === undefined) return 'acknowledges a body that is not a JSON document in UTF-8';
        countAccepted(kind, document, reply);
      }
      for (;;) {
        const request = readRequest(bytes, at);
        if (request === undefined) return undefined;
        at = request.end;
        countPerhaps(request);
      }
    },
  };
  return tally;
}

function tableOfMessage({ type }: Element): Table | undefined {
  return typeof type === 'string' ? tableOfType[type] : undefined;
}

function elementsOf(document: Element): readonly Element[] {
  for (const field of ['events', 'users', 'messages', 'batch']) {
    const elements = document[field];
    if (Array.isArray(elements)) {
      return elements.map((element: unknown) =>
        typeof element === 'object' && element !== null ? (element as Element) : {},
      );
    }
  }
  return [document];
}
