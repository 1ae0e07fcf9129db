// Sends a load with wrk, as fast as the service answers, for a fraction of the CPU that the bench itself takes. wrk-load.lua decides what
// wrk sends. wrk reports only the statuses of answers.

import { type ChildProcessWithoutNullStreams, spawnSync } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { launch } from '../../deploy/local/launch.js';
import { plainEnvironment } from '../../test/harness/environment.js';
import { cpuMicroseconds } from '../deployment/processes.js';
import { BenchError } from '../failure.js';

export type WrkOptions = {
  readonly url: string;
  readonly path: string;
  /** Sent in turn, over and over, by the next free connection. None may contain a line break. */
  readonly bodies: readonly Buffer[];
  readonly requests: number;
  readonly connections: number;
  /** The run fails if the last answer comes later than this. */
  readonly secondsMax: number;
};

const script = fileURLToPath(new URL('./wrk-load.lua', import.meta.url));
const linePrefix = 'bench: ';
/** A request without an answer for this long counts as unanswered. */
const answerSecondsMax = 30;
/** Signals are repeated, since one that arrives before wrk sleeps does not wake it. */
const signalEveryMs = 50;
const errorCharsMax = 500;

/** Whether wrk is installed. */
export function hasWrk(): boolean {
  return spawnSync('wrk', ['-v'], { stdio: 'ignore' }).error === undefined;
}

/** Starts wrk and passes it the bodies. Settles when wrk has read them and waits. */
export async function prepareWrk(options: WrkOptions) {
  const { url, path, bodies, requests, connections, secondsMax } = options;
  const args = [
    ...['--threads', '1', '--connections', String(connections), '--duration', String(secondsMax)],
    ...['--timeout', String(answerSecondsMax), '--script', script, '--', `${url}${path}`],
    ...[connections, requests, bodies.length].map(String),
  ];
  const program = { command: 'wrk', args, env: plainEnvironment() };
  const child = launch(program, ['pipe', 'pipe', 'pipe'], 'KILL') as ChildProcessWithoutNullStreams;
  const { pid = 0, stdin, stdout, stderr } = child;
  let errors = '';
  const note = (text: string) => {
    errors = `${errors}${text}\n`.slice(0, errorCharsMax);
  };
  stderr.setEncoding('utf8').on('data', note);
  for (const from of [child, stdin]) from.on('error', ({ message }) => note(message));
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
  await nextWords();
  return {
    /** Ends wrk if it is still running. */
    stop: () => void child.kill('SIGKILL'),
    /**
     * Settles when all requests were answered, with the seconds from the start of the connections to the last answer, and wrk's CPU time in
     * µs. Rejects if a request was not answered, or was answered with a status of 400 or more.
     */
    send: async () => {
      const cpuBefore = cpuMicroseconds(pid);
      const startedAt = performance.now();
      stdin.write('\n');
      const words = await nextWords();
      const seconds = (performance.now() - startedAt) / 1000;
      if (words !== 'answered') {
        assertAnswered(requests, words);
        throw new BenchError(`wrk did not end within ${secondsMax} s`);
      }
      const generatorCpu = cpuMicroseconds(pid) - cpuBefore;
      // wrk has nothing left to send, but would wait until its time is over.
      const interrupting = setInterval(() => child.kill('SIGINT'), signalEveryMs);
      try {
        assertAnswered(requests, await nextWords());
      } finally {
        clearInterval(interrupting);
      }
      return { seconds, generatorCpu };
    },
  };
}

/** Throws BenchError unless all requests were answered successfully, by the counts that wrk-load.lua prints at the end. */
export function assertAnswered(requests: number, counts: string): void {
  const good = `answers ${requests} connect 0 read 0 write 0 status 0 timeout 0`;
  if (counts !== good) throw new BenchError(`of ${requests} requests, wrk counts: ${counts}`);
}
