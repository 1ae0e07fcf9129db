// Load as fast as the service answers, from wrk: it takes a seventh of the service's CPU, where the bench itself takes nearly as
// much as the service. wrk-load.lua decides what it sends. Of the answers it knows only the statuses.

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { launch } from '../../deploy/local/launch.js';
import { plainEnvironment } from '../../harness/environment.js';
import { cpuMicroseconds } from '../deployment/processes.js';
import { BenchError } from '../failure.js';

export type Wrk = { readonly command: string; readonly version: string };

export type WrkOptions = {
  readonly url: string;
  readonly path: string;
  /** Sent in turn, repeatedly, by whichever connection is free; none contains a line break. */
  readonly bodies: readonly Buffer[];
  readonly requests: number;
  readonly connections: number;
  /** The run fails if the last answer has not come by then. */
  readonly secondsMax: number;
};

export type WrkResult = {
  /** From the start of the connections to the last answer. */
  readonly seconds: number;
  /** CPU time in µs that wrk used meanwhile. */
  readonly generatorCpu: number;
};

/** A wrk that has read its bodies and waits. */
export type PreparedWrk = {
  /** Settles when all requests were answered; rejects if one was not, or with a status of 400 or more. */
  send(): Promise<WrkResult>;
  /** Ends it if it is still running. */
  stop(): void;
};

/** What wrk counted: answers, and errors by its own names. `status` are answers of 400 or more. */
export type WrkCounts = Readonly<Record<'answers' | Fault, number>>;
type Fault = (typeof faults)[number];

const faults = ['connect', 'read', 'write', 'status', 'timeout'] as const;
const script = fileURLToPath(new URL('./wrk-load.lua', import.meta.url));
const linePrefix = 'bench: ';
/** If nothing of an answer comes for this long, the request counts as unanswered. */
const answerSecondsMax = 30;
/** A signal that comes before wrk sleeps does not wake it. */
const signalEveryMs = 50;
const errorCharsMax = 500;

/** Undefined if it is not installed. */
export function findWrk(command = 'wrk'): Wrk | undefined {
  // It fails then, since it gets no URL.
  const { stdout } = spawnSync(command, ['-v'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const version = /^wrk (?:\w+\/)?(\d+(?:\.\d+)*)/.exec(stdout ?? '')?.[1];
  return version === undefined ? undefined : { command, version };
}

/** Starts wrk and gives it the bodies; settles when it is ready to begin. */
export async function prepareWrk({ command }: Wrk, options: WrkOptions): Promise<PreparedWrk> {
  const { url, path, bodies, requests, connections, secondsMax } = options;
  const args = [
    ...['--threads', '1', '--connections', String(connections), '--duration', String(secondsMax)],
    ...['--timeout', String(answerSecondsMax), '--script', script, '--', `${url}${path}`],
    ...[connections, requests, bodies.length].map(String),
  ];
  const child = launch({ command, args, env: plainEnvironment() }, ['pipe', 'pipe', 'pipe'], 'KILL');
  const { pid, stdin, stdout, stderr } = child;
  if (pid === undefined) {
    const [error] = (await once(child, 'error')) as [Error];
    throw new BenchError(`wrk cannot be started: ${error.message}`);
  }
  if (stdin === null || stdout === null || stderr === null) throw new Error('wrk has no pipes');
  let errors = '';
  stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = `${errors}${text}`.slice(0, errorCharsMax);
  });
  stdin.once('error', ({ message }) => {
    errors = `${errors}${message}\n`;
  });
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  const nextWords = async (): Promise<string> => {
    for (;;) {
      const { value, done } = await lines.next();
      if (done) throw new BenchError(`wrk ended before it was done: ${errors.trim()}`);
      if (value.startsWith(linePrefix)) return value.slice(linePrefix.length);
    }
  };
  for (const body of bodies) {
    stdin.write(body);
    stdin.write('\n');
  }
  const stop = () => {
    child.kill('SIGKILL');
  };
  try {
    await expectWords(nextWords, 'ready');
  } catch (error) {
    stop();
    throw error;
  }
  return {
    stop,
    send: async () => {
      const cpuBefore = cpuMicroseconds(pid);
      const startedAt = performance.now();
      stdin.write('\n');
      const words = await nextWords();
      const seconds = (performance.now() - startedAt) / 1000;
      if (words !== 'answered') {
        assertAnswered(requests, readCounts(words));
        throw new BenchError(`wrk did not end within ${secondsMax} s`);
      }
      const generatorCpu = cpuMicroseconds(pid) - cpuBefore;
      // It has nothing more to send, and would otherwise wait until its time is over.
      const interrupting = setInterval(() => child.kill('SIGINT'), signalEveryMs);
      try {
        assertAnswered(requests, readCounts(await nextWords()));
      } finally {
        clearInterval(interrupting);
      }
      return { seconds, generatorCpu };
    },
  };
}

async function expectWords(nextWords: () => Promise<string>, expected: string): Promise<void> {
  const words = await nextWords();
  if (words !== expected) throw new BenchError(`wrk printed ${words} instead of ${expected}`);
}

/** Reads what wrk-load.lua prints at the end. */
export function readCounts(words: string): WrkCounts {
  const counts = new Map([...words.matchAll(/(\w+) (\d+)/g)].map(([, name, value]) => [name, Number(value)]));
  const of = (name: string): number => {
    const value = counts.get(name);
    if (value === undefined) throw new BenchError(`wrk printed no number for ${name}: ${words}`);
    return value;
  };
  return {
    answers: of('answers'),
    connect: of('connect'),
    read: of('read'),
    write: of('write'),
    status: of('status'),
    timeout: of('timeout'),
  };
}

/** Throws BenchError unless all requests were answered and nothing went wrong. */
export function assertAnswered(requests: number, counts: WrkCounts): void {
  if (counts.answers === requests && faults.every((fault) => counts[fault] === 0)) return;
  const found = faults.map((fault) => `${fault} ${counts[fault]}`).join(', ');
  throw new BenchError(`${counts.answers} of ${requests} requests were answered; wrk's faults: ${found}`);
}
