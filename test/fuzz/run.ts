// A run of the fuzzer: cases of one seed on several connections at once. It ends at the first fault, with the smallest bytes that show it.

import { type FuzzCase, markerOf, type Observation, runCase } from './case.js';
import { type FuzzConnection, openConnection } from './connection.js';
import { mutate, withRightLength } from './mutate.js';
import { plant } from './plant.js';
import { type Random, randomOf } from './random.js';
import { type RequestContext, validRequests } from './requests.js';
import { shrink } from './shrink.js';
import { createTally, type Tally } from './tally.js';

export type Target = {
  readonly host: string;
  readonly port: number;
  readonly context: RequestContext;
  /** Whether the process that served the first case is still alive. */
  readonly alive: () => boolean;
  /** Restarts the process after it ended. */
  readonly restart: () => Promise<void>;
};

export type RunOptions = {
  readonly seed: number;
  readonly count: number;
  /** The number of the first case; 0 by default. */
  readonly from?: number;
  /** How many cases are under way at once; 48 by default. */
  readonly connections?: number;
  /** No answer within this time means that the request is incomplete and the server waits for more; 40 by default. */
  readonly quietMs?: number;
};

export type Fault = {
  readonly what: string;
  readonly seed: number;
  readonly caseNumber: number;
  /** The name of the request that was mutated. */
  readonly name: string;
  /** The smallest bytes that show the fault on a new connection; if they do not show it alone, the bytes of the case. */
  readonly bytes: Buffer;
  /**
   * `alone`: the bytes show the fault on a new connection. `after`: they show it only after the cases `before` on the same connection, of
   * which as many as possible were left out. `once`: it did not happen again.
   */
  readonly shown: 'alone' | 'after' | 'once';
  readonly before: readonly number[];
};

export type RunResult = {
  readonly cases: number;
  readonly tookMs: number;
  readonly statuses: Readonly<Record<string, number>>;
  /** Outcomes of the valid requests after them. */
  readonly followUps: Readonly<Record<Observation['followUp'], number>>;
  readonly tally: Tally;
  readonly fault: Fault | undefined;
};

/** How many cases run at most on one connection. */
const casesPerConnection = 30;

export function caseOf(context: RequestContext, seed: number, number: number): FuzzCase {
  const requests = validRequests(context);
  const random = randomOf(seed, number);
  const request = random.pick(requests);
  const other = random.pick(requests).bytes(`o${seed}-${number}`);
  const valid = request.bytes(`c${seed}-${number}`);
  const planted = random.oneIn(6) ? plant(valid, random) : undefined;
  // A planted value gets further in the service if nothing else is wrong.
  const bytes = planted !== undefined && !random.oneIn(4) ? planted : mutate(planted ?? valid, random, other);
  const slow = random.oneIn(40) ? { pauseMs: 1 + random.below(pauseMsMax) } : undefined;
  const pieces =
    slow === undefined ? cut(bytes, random) : inPieces(bytes, 2 + random.below(slowPiecesMax - 1));
  return { number, name: request.name, pieces, ...slow };
}

/** A slow request has at most this many pieces, with a pause before each. */
const slowPiecesMax = 12;
const pauseMsMax = 60;

function inPieces(bytes: Buffer, count: number): Buffer[] {
  const size = Math.ceil(bytes.length / count);
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
    bytes.subarray(at * size, (at + 1) * size),
  );
}

/** Cuts a request: most stay in one piece, some are sent in two or three. */
function cut(bytes: Buffer, random: Random): Buffer[] {
  if (!random.oneIn(6) || bytes.length < 3) return [bytes];
  const [first = 1, second = 1] = [random.below(bytes.length), random.below(bytes.length)].sort(
    (a, b) => a - b,
  );
  return [bytes.subarray(0, first), bytes.subarray(first, second), bytes.subarray(second)].filter(
    ({ length }) => length > 0,
  );
}

/** Runs the cases until all are done or one has shown a fault. */
export async function runFuzz(target: Target, options: RunOptions): Promise<RunResult> {
  const { seed, count, from = 0, connections = 48, quietMs = 40 } = options;
  const { appId } = target.context;
  const startedMs = performance.now();
  const tally = createTally();
  const statuses: Record<string, number> = {};
  const followUps = { answered: 0, closed: 0, unanswered: 0 };
  const underWay = new Set<Suspect>();
  /** The last cases without an answer: a busy process may get to them only later, and fail then. */
  const leftWaiting: Suspect[] = [];
  const allSuspects = (): Suspect[] => [...underWay, ...leftWaiting.toReversed()];
  let next = from;
  let fault: { readonly what: string; readonly suspects: readonly Suspect[] } | undefined;

  async function client(): Promise<void> {
    let connection: FuzzConnection | undefined;
    let history: FuzzCase[] = [];
    while (next < from + count && fault === undefined) {
      const fuzzCase = caseOf(target.context, seed, next);
      next += 1;
      if (connection === undefined || history.length >= casesPerConnection) history = [];
      const suspect: Suspect = { fuzzCase, history: [...history] };
      underWay.add(suspect);
      try {
        if (history.length === 0) {
          connection?.destroy();
          connection = await openConnection(target.host, target.port);
        }
        connection = connection as FuzzConnection;
        history.push(fuzzCase);
        const marker = markerOf(String(seed), fuzzCase.number);
        let observation = await runCase(connection, fuzzCase, appId, marker, quietMs);
        if (history.length > 1 && isHangUp(observation)) {
          // An earlier case may have asked the server to close the connection. A new one shows whether this case makes it
          // hang up.
          tally.count(observation.sent, []);
          connection.destroy();
          connection = await openConnection(target.host, target.port);
          history = [fuzzCase];
          observation = await runCase(connection, fuzzCase, appId, marker, quietMs);
        }
        countIn(observation, suspect);
        if (observation.followUp === 'unanswered') {
          leftWaiting.push(suspect);
          if (leftWaiting.length > connections) leftWaiting.shift();
        }
        if (observation.followUp !== 'answered') {
          connection.destroy();
          connection = undefined;
        }
      } catch (error) {
        connection = undefined;
        fault ??= { what: `nobody listens: ${(error as Error).message}`, suspects: allSuspects() };
      }
      if (!target.alive()) fault ??= { what: 'the process ended', suspects: allSuspects() };
      underWay.delete(suspect);
    }
    connection?.destroy();
  }

  function countIn(observation: Observation, suspect: Suspect): void {
    const { followUp, replies, sent } = observation;
    followUps[followUp] += 1;
    const own = followUp === 'answered' ? replies.slice(0, -1) : replies;
    for (const { status } of own) statuses[status] = (statuses[status] ?? 0) + 1;
    if (own.length === 0) statuses.none = (statuses.none ?? 0) + 1;
    const wrong = tally.count(sent, replies) ?? observation.fault;
    if (wrong === undefined) return;
    // A process that ends closes all connections, even in the middle of answers, so any case under way may be the cause.
    const isShared = isHangUp(observation) || !target.alive();
    const others = isShared ? allSuspects().filter((other) => other !== suspect) : [];
    fault ??= { what: target.alive() ? wrong : 'the process ended', suspects: [suspect, ...others] };
  }

  await Promise.all(Array.from({ length: connections }, client));
  const found = fault === undefined ? undefined : await reduce(target, seed, fault, quietMs);
  return {
    cases: next - from,
    tookMs: performance.now() - startedMs,
    statuses,
    followUps,
    tally,
    fault: found,
  };
}

function isHangUp({ followUp, replies }: Observation): boolean {
  return followUp === 'closed' && replies.length === 0;
}

/** A case that may have shown the fault, and the earlier cases on its connection. */
type Suspect = { readonly fuzzCase: FuzzCase; readonly history: readonly FuzzCase[] };

const patientQuietMs = 250;

/** Finds out which suspect fails, alone or after the earlier cases on its connection, and the smallest bytes that do. */
async function reduce(
  target: Target,
  seed: number,
  { what, suspects }: { readonly what: string; readonly suspects: readonly Suspect[] },
  quietMs: number,
): Promise<Fault> {
  let attempts = 0;
  /** Longer than the run waits, since a busy machine may need it, and the suspects are few. */
  const patientMs = Math.max(quietMs, patientQuietMs);
  /** Whether the last of these cases, sent one after another on a new connection, shows a fault. */
  const fails = async (cases: readonly FuzzCase[], caseQuietMs = patientMs): Promise<boolean> => {
    if (!target.alive()) await target.restart();
    const connection = await openConnection(target.host, target.port);
    try {
      for (const fuzzCase of cases) {
        attempts += 1;
        const marker = markerOf(`${seed}-again`, attempts);
        const { fault, sent, replies, followUp } = await runCase(
          connection,
          fuzzCase,
          target.context.appId,
          marker,
          caseQuietMs,
        );
        if (fault !== undefined || createTally().count(sent, replies) !== undefined) return true;
        if (followUp !== 'answered') break;
      }
      return !target.alive();
    } finally {
      connection.destroy();
    }
  };
  for (const { fuzzCase, history } of suspects) {
    const found = { what, seed, caseNumber: fuzzCase.number, name: fuzzCase.name };
    if (await fails([fuzzCase])) {
      const again = (bytes: Buffer) => fails([{ ...fuzzCase, pieces: [bytes] }], quietMs);
      const whole = Buffer.concat(fuzzCase.pieces);
      const bytes = (await again(whole)) ? await shrinkRequest(whole, again) : whole;
      if (!target.alive()) await target.restart();
      return { ...found, bytes, shown: 'alone', before: [] };
    }
    if (!(await fails([...history, fuzzCase]))) continue;
    let needed = [...history];
    for (const one of history) {
      const fewer = needed.filter((other) => other !== one);
      if (await fails([...fewer, fuzzCase])) needed = fewer;
    }
    const before = needed.map(({ number }) => number);
    return { ...found, bytes: Buffer.concat(fuzzCase.pieces), shown: 'after', before };
  }
  const first = (suspects[0] as Suspect).fuzzCase;
  const bytes = Buffer.concat(first.pieces);
  return { what, seed, caseNumber: first.number, name: first.name, bytes, shown: 'once', before: [] };
}

/** A bound, since every attempt costs a start if the case ends the process, and nesting shrinks only by matching brackets. */
const shrinkMsMax = 60_000;

/** Shrinks with a correct Content-Length if the bytes fail with that too, and then without this restriction. */
async function shrinkRequest(bytes: Buffer, fails: (candidate: Buffer) => Promise<boolean>): Promise<Buffer> {
  const untilMs = performance.now() + shrinkMsMax;
  const failsInTime = async (candidate: Buffer) => performance.now() < untilMs && (await fails(candidate));
  const framed = withRightLength(bytes);
  const failsFramed = (candidate: Buffer) => failsInTime(withRightLength(candidate));
  const smaller = (await fails(framed)) ? withRightLength(await shrink(framed, failsFramed)) : bytes;
  return shrink(smaller, failsInTime);
}

export function describeFault({ what, seed, caseNumber, name, bytes, shown, before }: Fault): string {
  const where = {
    alone: '',
    after: `, behind the cases ${before.join(', ')}`,
    once: ', which did not show it again',
  };
  const text = JSON.stringify(bytes.toString('latin1'));
  return `${what}\ncase ${caseNumber} of seed ${seed}, a mutation of ${name}${where[shown]}:\n${text}`;
}
