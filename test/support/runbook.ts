// Reads the command blocks of a page such as deploy/RUNBOOK.md, and runs them in a shell as its reader would.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import type { Deployment } from '../harness/services.js';
import { root } from './deploy-file.js';

export type Block = { readonly section: string; readonly commands: string };

/** The `sh` blocks of a page in their order, each with the heading or numbered step above it. */
export function readBlocks(page: string): Block[] {
  const blocks: Block[] = [];
  let section = '';
  let commands: string[] | undefined;
  for (const line of page.split('\n')) {
    const [, heading] = /^#{2,3} (.*)$/.exec(line) ?? [];
    const [, step] = /^\*\*(\d)\. /.exec(line) ?? [];
    if (commands !== undefined && line === '```') {
      blocks.push({ section, commands: commands.join('\n') });
      commands = undefined;
    } else if (commands !== undefined) commands.push(line);
    else if (line === '```sh') commands = [];
    else if (heading !== undefined) section = heading;
    else if (step !== undefined) section = `step ${step}`;
  }
  assert.equal(commands, undefined, 'every block ends');
  return blocks;
}

/** Defines the shell functions that the pages use, for a test's deployment. */
export const prelude = `
sluice() { node "$ROOT/dist/$1.js" "\${@:2}"; }
admin() { sluice src/admin/main "$@"; }
migrate() { sluice src/migrate; }
redis() { sluice src/admin/redis "$@"; }
clickhouse() { sluice src/admin/clickhouse "$@"; }
`;

/** Runs a block in a folder; settles with its output, or rejects with it when a command fails. */
export async function runBlock(
  sluice: Deployment,
  block: Block,
  folder: string,
  more: NodeJS.ProcessEnv = {},
): Promise<string> {
  const shell = spawn('bash', ['-euo', 'pipefail', '-c', `${prelude}${block.commands}`], {
    cwd: folder,
    env: {
      ...sluice.env,
      // redis-cli does not accept the path of a socket as a URL.
      REDIS_URL: sluice.redisUrl,
      PATH: [dirname(process.execPath), process.env.PATH].join(delimiter),
      ROOT: root,
      API: sluice.baseUrl,
      ADMIN: sluice.adminUrl,
      APP_ID: sluice.appId,
      ...more,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [shell.stdout, shell.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const timer = setTimeout(() => shell.kill('SIGKILL'), 240_000);
  const [code] = await once(shell, 'close');
  clearTimeout(timer);
  assert.equal(code, 0, `${block.section}:\n${block.commands}\n\n${output}`);
  return output;
}

/** The `text` blocks of a section, which only a real installation can run. */
export function readOwnBlocks(page: string, heading: string): string[] {
  const section = page.split(/^#{2,3} /m).find((text) => text.startsWith(`${heading}\n`));
  assert.ok(section, `there is a section ${heading}`);
  return [...section.matchAll(/^```text\n([\s\S]*?)^```$/gm)].map(([, commands]) => String(commands));
}

export type StubbedRun = {
  readonly printed: string;
  /** Each command as the list of its words, in order. */
  readonly commands: readonly (readonly string[])[];
  /** What the last command read from its standard input. */
  readonly read: string;
};

/** Runs a script with stubs for these programs, which note their arguments and input and print `answer`. */
export function runStubbed(
  script: string,
  programs: readonly string[],
  cwd: string,
  answer = '',
): StubbedRun {
  const folder = mkdtempSync(join(cwd, 'stubs-'));
  const note = join(folder, 'commands');
  for (const name of programs) {
    // Bash writes what ends in a line break at once. Without one a command is one write, which others beside it do not interrupt.
    const stub = `#!/bin/bash
      printf '%s\\0' ${name} "$@" $'\\x1e' >> '${note}'
      [ -p /dev/stdin ] && cat > '${join(folder, 'read')}'
      printf '%s' '${answer}'`;
    writeFileSync(join(folder, name), stub, { mode: 0o755 });
  }
  const { status, stdout, stderr } = spawnSync('bash', ['-euo', 'pipefail', '-c', script], {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: [folder, process.env.PATH].join(delimiter) },
  });
  assert.equal(status, 0, `${script}\n${stderr}`);
  const noted = existsSync(note) ? readFileSync(note, 'utf8').split('\x1e\0') : [];
  const read = join(folder, 'read');
  return {
    printed: stdout,
    commands: noted.filter((line) => line !== '').map((line) => line.split('\0').slice(0, -1)),
    read: existsSync(read) ? readFileSync(read, 'utf8') : '',
  };
}

/** Every program of ours that a text names, as `dist/….js`. */
export function programsNamedIn(text: string): string[] {
  return [...text.matchAll(/\bdist\/((?:src|workers)\/[\w/-]+)\.js\b/g)].map(([, name]) =>
    join(root, `dist/${name}.js`),
  );
}
