// The test runner itself: lanes, the report, and the end of what a file leaves behind.

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { watchIdleCores } from '../runner/idle-cores.js';
import {
  filesAtOnce,
  isQuick,
  laneOf,
  leavesOut,
  namedFiles,
  nameOf,
  partlyThorough,
} from '../runner/lanes.js';
import { inOrder, nextFile, type Planned } from '../runner/schedule.js';
import { test } from '../support/test.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));

type Run = {
  readonly process: ChildProcess;
  readonly dir: string;
  text(): string;
  /** Settles with the exit code. */
  readonly ended: Promise<number | null>;
};

/** Runs files of these texts as `npm test` runs its own. `sharing` is JavaScript. */
function run(files: Readonly<Record<string, string>>, secondsMax = 60, sharing = 'undefined'): Run {
  const dir = tempDir('runner');
  mkdirSync(join(dir, 'test/runner'), { recursive: true });
  // The files count as needing no CPU, so that as many start at once as their lane allows, however busy the machine is.
  const recorded = Object.keys(files).map((path) => [nameOf(path), { seconds: 60, cpuSeconds: 0 }]);
  writeFileSync(join(dir, 'test/runner/seconds.json'), JSON.stringify(Object.fromEntries(recorded)));
  const header = "import { test } from 'node:test';\nimport assert from 'node:assert/strict';\n";
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), header + text);
  const options = JSON.stringify({ root: dir, files: Object.keys(files), record: true, secondsMax });
  const module = new URL('../runner/run.js', import.meta.url).href;
  const code = `const { runFiles } = await import('${module}'); process.exitCode = await runFiles({ ...${options}, sharing: ${sharing} });`;
  const process_ = spawn(process.execPath, ['--input-type=module', '-e', code], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [process_.stdout, process_.stderr]) {
    stream.setEncoding('utf8').on('data', (piece: string) => {
      text += piece;
    });
  }
  const ended = once(process_, 'close').then(([exitCode]) => exitCode as number | null);
  return { process: process_, dir, text: () => text, ended };
}

/** The counts of the summary, which must be the last lines. */
function summary(text: string): Record<string, number> {
  const lines = text.trimEnd().split('\n').slice(-8);
  return Object.fromEntries(
    lines.map((line) => {
      const [, name = line, value] = /^ℹ (\w+) (\d+)$/.exec(line) ?? [];
      return [name, Number(value)];
    }),
  );
}

test('reports all files as one run, which fails when one test does', async () => {
  const one = run({
    'a.test.mjs': "test('holds', () => {}); test('is left out', { skip: 'no disk' }, () => {});",
    'b.test.mjs': "test('holds not', () => { assert.equal(1 + 1, 3, 'one and one'); });",
    'c.test.mjs': "test('outer', async (t) => { await t.test('inner', () => {}); console.log('printed'); });",
  });
  assert.equal(await one.ended, 1, one.text());
  const { duration_ms, ...counts } = summary(one.text());
  assert.deepEqual(counts, { tests: 5, suites: 0, pass: 3, fail: 1, cancelled: 0, skipped: 1, todo: 0 });
  assert.ok(duration_ms !== undefined && duration_ms > 0);
  assert.match(one.text(), /▶ a\.test\.mjs\n {2}✔ holds \(.*ms\)\n {2}﹣ is left out \(.*ms\) # no disk\n/);
  assert.match(one.text(), /[✔▶] a\.test\.mjs \(\d+ms\)/);
  assert.match(one.text(), /failing tests:[\s\S]*✖ holds not[\s\S]*one and one[\s\S]*slowest files/);
  assert.match(one.text(), /\nprinted\n/);
  assert.match(one.text(), /\n {4}✔ inner/);
});

test('passes when all tests do, and notes how long each file took', async () => {
  const one = run({ 'a.test.mjs': "test('holds', () => {});", 'b.test.mjs': "test('holds', () => {});" });
  assert.equal(await one.ended, 0, one.text());
  const recorded = JSON.parse(readFileSync(join(one.dir, 'test/runner/seconds.json'), 'utf8')) as object;
  assert.deepEqual(Object.keys(recorded), ['a.test.mjs', 'b.test.mjs']);
  for (const taken of Object.values(recorded))
    assert.deepEqual(Object.keys(taken), ['seconds', 'cpuSeconds']);
});

test('fails for a file that ends before its tests, whatever its exit code', async () => {
  const one = run({
    'exits.test.mjs': "test('ends the process', () => process.exit(0));",
    'throws.test.mjs': "throw new Error('while it was loaded');",
    'later.test.mjs': "test('holds', () => { setTimeout(() => { throw new Error('afterwards'); }, 1); });",
  });
  assert.equal(await one.ended, 1, one.text());
  assert.match(one.text(), /✖ exits\.test\.mjs[\s\S]*ended with code 0 before its tests had/);
  assert.match(one.text(), /✖ throws\.test\.mjs/);
  assert.match(one.text(), /while it was loaded/);
  assert.match(one.text(), /✖ later\.test\.mjs/);
});

test('what files share starts before them, is known to them alone, and ends when the last of them has', async () => {
  const file = join(tempDir('shared'), 'ended');
  const shares = "test('shares', () => { assert.equal(process.env.SHARED, 'yes'); });";
  const one = run(
    {
      'a.test.mjs': `import { existsSync } from 'node:fs';
        test('shares nothing', async () => {
          assert.equal(process.env.SHARED, undefined);
          while (!existsSync('${file}')) await new Promise((settle) => setTimeout(settle, 20));
        });`,
      'b.test.mjs': shares,
      'c.test.mjs': shares,
    },
    60,
    `{ files: ['b.test.mjs', 'c.test.mjs'], start: async () => ({ env: { SHARED: 'yes' }, stop: async () => {
      (await import('node:fs')).writeFileSync('${file}', '', { flag: 'wx' });
    } }) }`,
  );
  assert.equal(await one.ended, 0, one.text());
});

test('has temporary folders that other users may enter, like the system’s own', async () => {
  const one = run({
    'a.test.mjs': `import { statSync } from 'node:fs'; import { dirname } from 'node:path';
      for (let dir = process.env.TMPDIR; dir.includes('sluice-tests-'); dir = dirname(dir)) {
        test(dir, () => { assert.equal(statSync(dir).mode & 5, 5); });
      }`,
  });
  assert.equal(await one.ended, 0, one.text());
  assert.ok((summary(one.text()).pass ?? 0) >= 3, one.text());
});

/** A test that never ends. It mounts a disk if it may, and its process leaves an orphaned process behind. */
const hangs = (pidFile: string) => `
  import { spawn, spawnSync } from 'node:child_process';
  import { mkdtempSync, writeFileSync } from 'node:fs';
  import { tmpdir } from 'node:os';
  test('hangs', async () => {
    spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', '${basename(dirname(pidFile))}', mkdtempSync(tmpdir() + '/disk-')]);
    const shell = spawn('sh', ['-c', 'sleep 1000 & echo $!'], { detached: true });
    shell.stdout.once('data', (pid) => writeFileSync('${pidFile}', String(pid)));
    await new Promise(() => setInterval(() => undefined, 1000));
  });`;

test('ends a file that hangs and everything that it started, says where it hung, and continues', async () => {
  const pidFile = join(tempDir('pid'), 'pid');
  const one = run({ 'a.test.mjs': hangs(pidFile), 'b.test.mjs': "test('holds', () => {});" }, 10);
  assert.equal(await one.ended, 1, one.text());
  assert.match(one.text(), /✖ a\.test\.mjs[\s\S]*did not end within 10 s, in the test "hangs"/);
  assert.match(one.text(), /[✔▶] b\.test\.mjs \(\d+ms\)/);
  assert.equal(summary(one.text()).fail, 1);
  assertGone(pidFile);
});

test('when interrupted, ends all files and everything they started, and starts no other file', async () => {
  const numbers = Array.from({ length: filesAtOnce.usual }, (_, index) => index + 1);
  const pidFiles = numbers.map((number) => join(tempDir('pid'), String(number)));
  const waits = Object.fromEntries(pidFiles.map((file, i) => [`a${i}.test.mjs`, hangs(file)]));
  const one = run({ ...waits, 'b.test.mjs': "test('holds', () => {});" }, 120);
  const started = () => pidFiles.every((file) => readText(file) !== '');
  await until(started, 'the files run');
  one.process.kill('SIGINT');
  assert.equal(await one.ended, 130, one.text());
  assert.equal(summary(one.text()).fail, filesAtOnce.usual);
  assert.doesNotMatch(one.text(), /b\.test\.mjs/);
  for (const file of pidFiles) assertGone(file);
});

function readText(file: string): string {
  return readFileSync(file, { encoding: 'utf8', flag: 'a+' });
}

function assertGone(pidFile: string): void {
  if (existsSync('/proc/self/mounts')) {
    assert.ok(
      !readFileSync('/proc/self/mounts', 'utf8').includes(basename(dirname(pidFile))),
      'a disk was left',
    );
  }
  const pid = Number(readText(pidFile));
  assert.ok(pid > 1, 'a process was left');
  // Z: it has ended, but its new parent has not reaped it yet.
  assert.match(stateOf(pid), /[XZ]/);
}

/** The state of a process; `X` when there is none. */
function stateOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.[0] ?? '';
  } catch {
    return 'X';
  }
}

function planned(lane: Planned['lane'], seconds: number, cpuSeconds = 0, shares = false): Planned {
  return { path: `${lane} ${seconds}`, lane, shares, seconds, cpuSeconds };
}

test('runs files side by side as far as the cores last, but at least one', () => {
  const [half, most] = [planned('usual', 10, 5), planned('usual', 10, 19)];
  const times = (count: number) => Array<Planned>(count).fill(half);
  assert.equal(nextFile([half], times(2), 0), half);
  assert.equal(nextFile([half], times(3), 0), undefined);
  assert.equal(nextFile([most, half], times(2), 0), half, 'a smaller one goes first if only that fits');
  const greedy = planned('usual', 10, 30);
  assert.equal(nextFile([greedy], [], 0), greedy);
  assert.equal(nextFile([greedy], times(4), 0.2), undefined);
  assert.equal(nextFile([greedy], times(4), 0.3), greedy, 'or while a quarter of a core is idle');
});

test('returns how many cores were idle since the last call', () => {
  let idle = 0;
  const core = (times: object) => ({
    model: '',
    speed: 0,
    times: { user: 0, nice: 0, sys: 0, irq: 0, idle: 0, ...times },
  });
  const idleSinceLast = watchIdleCores(() => [
    core({ user: 1_000 + 3 * idle, idle }),
    core({ sys: 700, idle: 3 * idle }),
  ]);
  idle = 100;
  // The first was idle for 100 of 400 ms, the second for 300 of 300.
  assert.equal(idleSinceLast(), (2 * 400) / 700);
  assert.equal(idleSinceLast(), 0, 'no time has passed');
});

test('runs nine files at a time, and one that measures alone', () => {
  const [usual, alone] = [planned('usual', 5), planned('alone', 5)];
  const times = (count: number, file: Planned) => Array<Planned>(count).fill(file);
  const fits = (file: Planned, running: Planned[]) => nextFile([file], running, 0) === file;
  assert.deepEqual(
    [fits(usual, []), fits(usual, times(8, usual)), fits(usual, times(9, usual))],
    [true, true, false],
  );
  assert.deepEqual([fits(alone, []), fits(alone, [usual]), fits(usual, [alone])], [true, false, false]);
});

test('starts first what shares a deployment, then what takes longest and most of the CPU, and last what runs alone', () => {
  const usual = [
    planned('usual', 1),
    planned('usual', 5),
    planned('usual', 4, 3),
    planned('usual', 2, 0, true),
  ];
  const files = [planned('alone', 90), ...usual];
  assert.deepEqual(
    inOrder(files).map(({ path }) => path),
    ['usual 2', 'usual 4', 'usual 5', 'usual 1', 'alone 90'],
  );
});

test('every file that a lane names exists, a file that makes hosts runs alone, and one of the quick run starts no deployment', () => {
  const files = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.test.ts'))
    .sort();
  const thatContain = (text: RegExp, paths: readonly string[]) =>
    paths.filter((path) => text.test(readFileSync(join(root, 'test', path), 'utf8')));
  const names = new Set(files.map(nameOf));
  assert.deepEqual(
    namedFiles().filter((name) => !names.has(name)),
    [],
  );
  assert.equal(names.size, files.length, 'each name is one file');
  assert.equal(laneOf('dist/test/bench-load.test.js'), 'alone');
  const makeHosts = thatContain(/\bcreateHosts\(/, files);
  assert.deepEqual([...new Set(makeHosts.map(laneOf))], ['alone']);
  const starts = /\b(startSluice|ownSluice|sharedSluice|startClickHouse|startDeployment|launchBrowser)\(/;
  assert.deepEqual(thatContain(starts, files.filter(isQuick)), []);
});

test('single tests that only `test:all` has are left out of `npm test` alone, and each exists', () => {
  const files = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' });
  const missing = partlyThorough().flatMap(([name, starts]) => {
    const path = files.find((file) => file.endsWith(`/${name}.test.ts`)) ?? '';
    const source = readFileSync(join(root, 'test', path), 'utf8');
    assert.match(source, /^import \{ test \} from '\.\.\/support\/test\.js';$/m, name);
    const titles = [...source.matchAll(/\btest\(\s*(['`])(.+?)(?:\1|\$\{)/g)].map(
      ([, , title = '']) => title,
    );
    // The text after a variable in a title is not known here.
    return starts.filter(
      (start) => !titles.some((title) => title.startsWith(start) || start.startsWith(title)),
    );
  });
  assert.deepEqual(missing, []);
  const [[name, [start = '']]] = partlyThorough() as [readonly [string, readonly string[]]];
  const path = `dist/test/any/${name}.test.js`;
  assert.deepEqual(
    [leavesOut(path, `${start} …`, true), leavesOut(path, 'another', true), leavesOut(path, start, false)],
    [true, false, false],
  );
});
