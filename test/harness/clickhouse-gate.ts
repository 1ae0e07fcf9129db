// An HTTP proxy between a worker and ClickHouse that understands statements. A test chooses which statements it holds or delays, whose
// answers it loses or changes, and which it refuses, or acknowledges without executing them. A held statement arrives whole even if its
// sender was paused or killed meanwhile.

import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { atPort } from './clickhouse.js';

export type Statement = {
  readonly sql: string;
  /** Parameters of the URL, including settings. */
  readonly parameters: URLSearchParams;
  readonly body: Buffer;
};

export type Choice = (statement: Statement) => boolean;

export type ClickHouseGate = {
  readonly url: string;
  readonly held: readonly Statement[];
  /** Statements whose answers were lost since `loseAnswers`. */
  readonly lost: readonly Statement[];
  hold(choice: Choice): void;
  /** Passes all held statements on, and holds no further ones. */
  release(): void;
  /** Drops all held statements: they never arrive. Goes on holding further ones. */
  forget(): void;
  /** From now on executes the chosen statements, and resets the connection instead of answering. */
  loseAnswers(choice: Choice): void;
  /** Statements that were refused since `refuse`, or acknowledged without execution since `pretend`. */
  readonly faked: readonly Statement[];
  /** From now on refuses the chosen statements with an error of this code, without executing them. */
  refuse(choice: Choice, code: number): void;
  /** How many statements the gate's own `Refusal` has refused. */
  readonly alwaysRefused: number;
  /**
   * From now on acknowledges the chosen statements without executing them, and also all later inserts with the same token, as ClickHouse
   * does with a token that it has logged.
   */
  pretend(choice: Choice): void;
  /** From now on executes the chosen statements, and replaces the bodies of their answers by what `change` returns. */
  change(choice: Choice, change: (answer: Answer) => Buffer): void;
  /** Answers that were changed since `change`. */
  readonly changed: readonly Statement[];
  /** From now on executes the chosen statements `ms` later. */
  delay(choice: Choice, ms: number): void;
  /** Ends all of this and passes everything on, as at the start. */
  pass(): void;
  close(): Promise<void>;
};

export const inserts: Choice = ({ sql }) => sql.startsWith('INSERT INTO stored_');

/**
 * Chooses the inserts of segments. Other inserts must not be acknowledged without their rows: they have no token, and Redis would forget
 * keys that were never indexed.
 */
export const segmentInserts: Choice = (statement) =>
  inserts(statement) && !statement.sql.startsWith('INSERT INTO stored_keys');

/** Chooses the queries for marker rows. */
export const markerLooks: Choice = ({ sql }) => sql.includes('AS markers');

type Waiting = { readonly statement: Statement; readonly go: (arrives: boolean) => void };

const nothing: Choice = () => false;

/** Statements that the gate always refuses, as ClickHouse refuses data that it cannot parse. */
export type Refusal = { readonly choice: Choice; readonly code: number };

type Change = { readonly choice: Choice; readonly change: (answer: Answer) => Buffer };

/** Listens on a loopback port of its own; it does not keep the process alive. */
export async function startClickHouseGate(
  targetUrl: string,
  always: Refusal = { choice: nothing, code: 0 },
): Promise<ClickHouseGate> {
  const held: Waiting[] = [];
  const lost: Statement[] = [];
  const faked: Statement[] = [];
  let holds = nothing;
  let loses = nothing;
  let refused: Refusal = { choice: nothing, code: 0 };
  let alwaysRefused = 0;
  let pretended = nothing;
  const burntTokens = new Set<string>();
  let delayed = { choice: nothing, ms: 0 };
  let changes: Change = { choice: nothing, change: ({ body }) => body };
  const changed: Statement[] = [];

  async function handle(incoming: IncomingMessage, reply: ServerResponse): Promise<void> {
    const statement = await readStatement(incoming);
    if (holds(statement)) {
      const arrives = await new Promise<boolean>((go) => held.push({ statement, go }));
      if (!arrives) throw new Error('the statement got lost');
    }
    if (refused.choice(statement)) {
      faked.push(statement);
      return answerError(reply, refused.code);
    }
    if (always.choice(statement)) {
      alwaysRefused += 1;
      return answerError(reply, always.code);
    }
    const token = statement.parameters.get('insert_deduplication_token');
    if (pretended(statement)) {
      if (token !== null) burntTokens.add(token);
      faked.push(statement);
      reply.writeHead(200).end();
      return;
    }
    if (token !== null && burntTokens.has(token)) {
      reply.writeHead(200).end();
      return;
    }
    if (delayed.choice(statement)) await new Promise((settle) => setTimeout(settle, delayed.ms));
    const answer = await forward(new URL(targetUrl).origin, incoming, statement.body);
    if (loses(statement)) {
      lost.push(statement);
      incoming.socket.resetAndDestroy();
    } else if (!reply.destroyed) {
      const isChanged = changes.choice(statement);
      if (isChanged) changed.push(statement);
      reply.writeHead(answer.status, answer.headers).end(isChanged ? changes.change(answer) : answer.body);
    }
  }

  const server = createServer((incoming, reply) => {
    incoming.socket.unref();
    // As in a broken network, the client sees a connection that ends without an answer.
    handle(incoming, reply).catch(() => incoming.socket.resetAndDestroy());
  });
  await new Promise<void>((settle) => server.listen({ host: '127.0.0.1', port: 0 }, settle));
  server.unref();

  function release(): void {
    holds = nothing;
    for (const { go } of held.splice(0)) go(true);
  }

  return {
    url: atPort(targetUrl, (server.address() as AddressInfo).port),
    get held() {
      return held.map(({ statement }) => statement);
    },
    lost,
    hold: (choice) => {
      holds = choice;
    },
    release,
    forget: () => {
      for (const { go } of held.splice(0)) go(false);
    },
    loseAnswers: (choice) => {
      lost.length = 0;
      loses = choice;
    },
    faked,
    get alwaysRefused() {
      return alwaysRefused;
    },
    refuse: (choice, code) => {
      faked.length = 0;
      refused = { choice, code };
    },
    pretend: (choice) => {
      faked.length = 0;
      pretended = choice;
    },
    change: (choice, change) => {
      changed.length = 0;
      changes = { choice, change };
    },
    changed,
    delay: (choice, ms) => {
      delayed = { choice, ms };
    },
    pass: () => {
      loses = nothing;
      pretended = nothing;
      refused = { choice: nothing, code: 0 };
      delayed = { choice: nothing, ms: 0 };
      changes = { choice: nothing, change: ({ body }) => body };
      release();
    },
    close: async () => {
      for (const { go } of held.splice(0)) go(false);
      server.closeAllConnections();
      await new Promise((settle) => server.close(settle));
    },
  };
}

function answerError(reply: ServerResponse, code: number): void {
  const text = `Code: ${code}. DB::Exception: Refused by the gate. (REFUSED)`;
  reply.writeHead(500, { 'X-ClickHouse-Exception-Code': code }).end(text);
}

async function readStatement(incoming: IncomingMessage): Promise<Statement> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming as AsyncIterable<Buffer>) pieces.push(piece);
  const body = Buffer.concat(pieces);
  const parameters = new URL(incoming.url ?? '/', 'http://localhost').searchParams;
  return { sql: parameters.get('query') ?? body.toString('utf8'), parameters, body };
}

export type Answer = {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
};

function forward(targetOrigin: string, incoming: IncomingMessage, body: Buffer): Promise<Answer> {
  return new Promise((settle, reject) => {
    const { 'transfer-encoding': _, connection: __, ...headers } = incoming.headers;
    const sent = request(
      `${targetOrigin}${incoming.url}`,
      { method: incoming.method, headers: { ...headers, 'content-length': body.length } },
      (answer) => {
        const pieces: Buffer[] = [];
        answer.on('data', (piece: Buffer) => pieces.push(piece));
        answer.once('end', () => {
          const { 'transfer-encoding': _, connection: __, ...kept } = answer.headers;
          settle({ status: answer.statusCode ?? 502, headers: kept, body: Buffer.concat(pieces) });
        });
        answer.once('error', reject);
      },
    );
    sent.once('error', reject);
    sent.end(body);
  });
}
