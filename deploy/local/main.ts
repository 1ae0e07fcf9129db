// The supervisor behind `npm start`. It starts Redis, ClickHouse, the workers and the API on one machine, in this order, each once the
// previous one is healthy. It restarts whatever ends, and stops everything in reverse order.

import { join } from 'node:path';
import { type Config, readConfigOrExit } from '../../src/config.js';
import { prepareAdministration } from './administration.js';
import { checkPorts } from './check-ports.js';
import { type Child, type ChildSpec, createChild } from './child.js';
import { apiSpec, clickhouseSpec, nodeProgram, workerSpec } from './children.js';
import { missingEngine } from './clickhouse/engine.js';
import { type Bootstrap, firstOperator, greeting, showApiKey, showSecret } from './greeting.js';
import { type DataDirLock, lockDataDir } from './lock.js';
import { checkOutsideClickHouse, checkOutsideRedis } from './outside.js';
import { closeToOthers, makeFilesPrivate } from './private-data.js';
import { checkLastPrimary, numbers, redisSpecs } from './redis-nodes.js';
import { runOnce } from './run-once.js';
import { StartError } from './start-error.js';

const config = readConfigOrExit();
makeFilesPrivate();
const children: Child[] = [];
const stopping = new AbortController();
const hurry = new AbortController();
let lock: DataDirLock | undefined;
let running: Promise<unknown> | undefined;
let stopped: Promise<void> | undefined;

process.stdout.on('error', () => undefined);
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => onStop(signal));
if (process.env.npm_lifecycle_event === 'start') stopWithParent();

try {
  const missing = config.clickhouseEmbedded ? missingEngine() : undefined;
  if (missing !== undefined) throw new StartError(missing);
  lock = await lockDataDir(config.dataDir, say);
  closeToOthers(config.dataDir);
  await checkPorts(config);
  if (config.redisEmbedded) checkLastPrimary(config);
  await startAll(config, lock);
} catch (error) {
  const interrupted = stopping.signal.aborted;
  if (!interrupted) say(error instanceof StartError ? error.message : String((error as Error).stack));
  await stopAll();
  process.exit(interrupted ? 0 : 1);
}

async function startAll(config: Config, lock: DataDirLock): Promise<void> {
  let bootstrap: Bootstrap | undefined;
  const administration = prepareAdministration(config, process.env);
  const start = (spec: ChildSpec) => startChild(spec, lock);
  const run = (name: string, ...args: [string, ...string[]]) => {
    const output = runOnce(name, nodeProgram(...args), lock, stopping.signal, say);
    running = output;
    return output;
  };

  const steps: (() => Promise<void>)[] = [
    ...(config.redisEmbedded
      ? redisSpecs(config).map((spec) => () => start(spec))
      : [() => checkOutsideRedis(config, say)]),
    ...(config.clickhouseEmbedded
      ? numbers(config.clickhouseServers).map((number) => () => start(clickhouseSpec(config, number)))
      : config.clickhouseUrls.map((url) => () => checkOutsideClickHouse(url))),
    async () => {
      await run('migrate', 'src/migrate.js');
    },
    async () => {
      const output = await run('bootstrap', 'src/admin/main.js', 'bootstrap');
      if (!stopping.signal.aborted) bootstrap = parseBootstrap(output);
    },
    ...numbers(config.workerProcesses).map((number) => () => start(workerSpec(config, number))),
    ...numbers(config.apiProcesses).map((number) => () => start(apiSpec(config, number, administration.env))),
  ];
  for (const step of steps) {
    if (stopping.signal.aborted) return;
    await step();
  }
  if (stopping.signal.aborted) return;
  if (bootstrap?.restored) say('accounts and deletion requests were loaded from ClickHouse into Redis');
  if (bootstrap === undefined) return;
  const { api_key, has_operator } = bootstrap;
  const isTerminal = process.stdout.isTTY;
  const apiKey = api_key === undefined ? undefined : showApiKey(config, api_key, isTerminal);
  const url = has_operator ? undefined : await inviteOperator(run);
  if (stopping.signal.aborted) return;
  const invitation = url === undefined ? undefined : showSecret(config, 'sign-in-link', url, isTerminal);
  process.stdout.write(`${greeting(config, bootstrap, administration, apiKey, invitation).join('\n')}\n`);
}

/** The link with which the first operator chooses a password; undefined if the start is being stopped. */
async function inviteOperator(
  run: (name: string, ...args: [string, ...string[]]) => Promise<string>,
): Promise<string | undefined> {
  const words = ['people', 'invite', firstOperator, '--role', 'operator'];
  const output = await run('invite', 'src/admin/main.js', ...words);
  return stopping.signal.aborted ? undefined : (JSON.parse(output) as { url: string }).url;
}

async function startChild(spec: ChildSpec, lock: DataDirLock): Promise<void> {
  const startedAt = performance.now();
  const child = createChild(spec, { logDir: join(config.dataDir, 'log'), lock, say });
  children.push(child);
  await child.start();
  if (stopping.signal.aborted) return;
  say(`${spec.name} runs (pid ${child.pid}, ${Math.round(performance.now() - startedAt)} ms)`);
}

function onStop(reason: string): void {
  if (stopping.signal.aborted) {
    hurry.abort();
    return;
  }
  say(`${reason}: stopping`);
  void stopAll().then(() => {
    say('stopped');
    process.exit(0);
  });
}

/** npm passes some signals only to its shell, and cannot pass on SIGKILL. So this process stops when npm ends. */
function stopWithParent(): void {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    // After Ctrl-C npm and its shell may end before this process: that is not a second signal.
    if (!stopping.signal.aborted) onStop('npm has ended');
  }, 200);
  timer.unref();
}

/** Ends all children, the kind that was started last first. Settles when they are gone. */
function stopAll(): Promise<void> {
  stopping.abort();
  lock?.noteStopping();
  stopped ??= (async () => {
    await Promise.allSettled([running]);
    for (const kind of ['api', 'worker', 'clickhouse', 'redis']) {
      const group = children.filter(({ name }) => name.startsWith(kind));
      await Promise.all(group.map((child) => child.stop(hurry.signal)));
    }
    lock?.release();
  })();
  return stopped;
}

function parseBootstrap(output: string): Bootstrap {
  const line = output.trim().split('\n').at(-1) ?? '';
  if (!line.startsWith('{')) throw new StartError(`bootstrap printed no JSON: ${line.slice(0, 200)}`);
  return JSON.parse(line) as Bootstrap;
}

function say(line: string): void {
  process.stdout.write(`sluice: ${line}\n`);
}
