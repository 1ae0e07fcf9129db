// Executes the Dockerfile without a container engine: every stage is a folder, where its commands run with this machine's programs and
// node instead of the base image's.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { type Copy, DockerfileParser, type From, type Instruction } from 'dockerfile-ast';
import { tempDir } from '../harness/temp-dir.js';
import { deployPath, root } from './deploy-file.js';

export type Image = {
  /** The folder that is the image's `/`. */
  readonly folder: string;
  readonly workdir: string;
  readonly env: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly user: string;
  readonly ports: readonly number[];
  readonly healthcheck: readonly string[];
  readonly command: readonly string[];
};

type Stage = {
  readonly folder: string;
  workdir: string;
  env: Record<string, string>;
  /** The build's arguments, with their defaults. */
  readonly args: Record<string, string>;
  readonly labels: Record<string, string>;
  user: string;
  ports: number[];
  healthcheck: string[];
  command: string[];
};

/**
 * Builds the image. `installed` has a command that is not run because this project already has its result, and the folder with the
 * result.
 */
export function buildImage(installed: { readonly command: string; readonly folder: string }): Image {
  const stages = new Map<string, Stage>();
  let stage: Stage | undefined;
  const instructions = DockerfileParser.parse(
    readFileSync(deployPath('Dockerfile'), 'utf8'),
  ).getInstructions();
  for (const instruction of instructions) {
    const keyword = instruction.getKeyword();
    if (keyword === 'FROM') {
      stage = newStage();
      const name = (instruction as From).getBuildStage();
      if (name !== null) stages.set(name, stage);
      continue;
    }
    assert.ok(stage, 'a Dockerfile begins with FROM');
    if (keyword === 'RUN' && textOf(instruction) === installed.command) {
      symlinkSync(join(root, installed.folder), join(inStage(stage, '.'), installed.folder));
    } else carryOut(stage, stages, instruction);
  }
  assert.ok(stage);
  return stage;
}

function newStage(): Stage {
  const folder = tempDir('image');
  // The image's user is not the test's, but must be able to read it.
  chmodSync(folder, 0o755);
  return {
    folder,
    workdir: '/',
    env: {},
    args: {},
    labels: {},
    user: 'root',
    ports: [],
    healthcheck: [],
    command: [],
  };
}

function carryOut(stage: Stage, stages: ReadonlyMap<string, Stage>, instruction: Instruction): void {
  const text = textOf(instruction);
  const steps: Record<string, () => void> = {
    WORKDIR: () => {
      stage.workdir = resolve(stage.workdir, text);
      mkdirSync(inStage(stage, '.'), { recursive: true });
    },
    ENV: () => {
      for (const pair of text.split(' '))
        stage.env[String(pair.split('=')[0])] = pair.slice(pair.indexOf('=') + 1);
    },
    ARG: () => {
      const [name = '', value = ''] = text.split('=');
      stage.args[name] = value;
    },
    LABEL: () => {
      for (const [, name = '', value = ''] of text.matchAll(/(\S+)="([^"]*)"/g))
        stage.labels[name] = value.replace(/\$(\w+)/g, (_, each: string) => stage.args[each] ?? '');
    },
    USER: () => {
      stage.user = text;
    },
    EXPOSE: () => {
      stage.ports = text.split(' ').map(Number);
    },
    HEALTHCHECK: () => {
      stage.healthcheck = JSON.parse(text.replace(/^CMD /, '')) as string[];
    },
    CMD: () => {
      stage.command = JSON.parse(text) as string[];
    },
    COPY: () => copy(stage, stages, instruction as Copy),
    RUN: () => {
      const { status, stderr } = spawnSync('sh', ['-c', text], {
        cwd: inStage(stage, '.'),
        encoding: 'utf8',
      });
      assert.equal(status, 0, `RUN ${text}\n${stderr}`);
    },
  };
  const step = steps[instruction.getKeyword()];
  assert.ok(step, `${instruction.getKeyword()} is supported here`);
  step();
}

function copy(stage: Stage, stages: ReadonlyMap<string, Stage>, instruction: Copy): void {
  const sources = textOf(instruction).split(' ');
  const target = sources.pop() ?? '';
  const from = instruction.getFlags().find((flag) => flag.getName() === 'from');
  const other = from === undefined ? undefined : stages.get(from.getValue() ?? '');
  assert.equal(other === undefined, from === undefined, `COPY names a stage: ${textOf(instruction)}`);
  for (const source of sources) {
    const path = other === undefined ? inContext(source) : inStage(other, source);
    const into = target.endsWith('/') ? join(target, basename(source)) : target;
    mkdirSync(dirname(inStage(stage, into)), { recursive: true });
    cpSync(path, inStage(stage, into), {
      recursive: true,
      filter: (file) => other !== undefined || isSent(file),
    });
  }
}

function textOf(instruction: Instruction): string {
  return (instruction.getArgumentsContent() ?? '').replaceAll(/\\\n\s*/g, '').trim();
}

function inStage(stage: Stage, path: string): string {
  return join(stage.folder, resolve(stage.workdir, path));
}

function inContext(path: string): string {
  assert.ok(existsSync(join(root, path)) && sent.length > 0, `the context has ${path}`);
  return join(root, path);
}

const [everything, ...sentLines] = readFileSync(join(root, '.dockerignore'), 'utf8')
  .split('\n')
  .filter((line) => line !== '' && !line.startsWith('#'));
assert.equal(everything, '*', '.dockerignore leaves out everything first');

const sent = sentLines.map((line) => {
  assert.match(line, /^![\w./-]+$/, '.dockerignore names plain paths');
  return join(root, line.slice(1));
});

/** Whether a file or folder of the project gets into the build's context, or leads to one that does. */
function isSent(file: string): boolean {
  return sent.some((path) => file === path || file.startsWith(`${path}/`) || path.startsWith(`${file}/`));
}
