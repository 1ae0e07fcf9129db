// The command line of administrators, which reads words by the lines of the usage, and what every definition of a command must have.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Administration } from '../../src/admin/administration.js';
import { routesOf, shapeOf } from '../../src/admin/command.js';
import { runCommandLine, usage } from '../../src/admin/command-line.js';
import { commands, namedCommands } from '../../src/admin/commands.js';
import { readParameters } from '../../src/admin/parameters.js';
import { administrationAnswers } from '../../src/contract/administration-answers.js';

/** The command and the parameters that the words name, without running it. */
async function read(...words: string[]): Promise<unknown> {
  let given: unknown;
  const run: Administration['run'] = async (name, fields = {}, nameOf = undefined) => {
    given = [name, readParameters(commands[name], fields, nameOf)];
    return { deletions: [] };
  };
  await runCommandLine({ run, context: {} as Administration['context'] }, words);
  return given;
}

test('reads options, lists, pairs, flags and positional parameters by the usage line', async () => {
  for (const [words, name, params] of [
    [['accounts', 'list'], 'listAccounts', {}],
    [['state', 'reload'], 'reloadState', {}],
    [['restore'], 'reloadState', {}],
    [
      ['accounts', 'create', 'Shop', '--environment', 'Main', '--environment', 'Test'],
      'createAccount',
      { name: 'Shop', environments: ['Main', 'Test'] },
    ],
    [['accounts', 'callback', '1'], 'showCallback', { account_id: '1' }],
    [['accounts', 'callback', '1', '--url', 'u'], 'setCallback', { account_id: '1', url: 'u' }],
    [['accounts', 'callback', '1', '--none'], 'removeCallback', { account_id: '1' }],
    // A command without options accepts a name that begins like one.
    [['environments', 'add', '1', '--x'], 'addEnvironment', { account_id: '1', name: '--x' }],
    [
      [
        'environments',
        'set',
        '1',
        '--main',
        '--limit',
        'track=none',
        '--limit',
        'bulk_app=5',
        '--origin',
        'any',
      ],
      'setEnvironment',
      { app_id: '1', main: true, limits: { track: 'none', bulk_app: 5 }, origins: ['any'] },
    ],
    [['keys', 'revoke', '1'], 'revokeKey', { app_id: '1' }],
    [['keys', 'revoke', '1', 'k'], 'revokeKey', { app_id: '1', id: 'k' }],
    [['deletions', 'list', '--account', '1'], 'listDeletions', { account_id: '1' }],
    [['shards', 'move', '1', '2', '--to', '0'], 'moveShards', { shards: [1, 2], server: 0 }],
    [['backup', 'create', '--keep-days', '3'], 'createBackup', { keep_days: 3 }],
  ] as const)
    assert.deepEqual(await read(...words), [name, params], words.join(' '));
});

test('refuses words that are missing, too many, or wrong, and says which', async () => {
  for (const [words, why] of [
    [['keys', 'show'], /^exactly one APP_ID is needed/],
    [['keys', 'revoke', '1', 'k', 'l'], /^exactly one ID is needed/],
    [['accounts', 'create', 'Shop'], /^--environment is needed\n\n {2}accounts create NAME .*$/],
    [['accounts', 'create', 'Shop', '--environment'], /^--environment needs a value\n/],
    [['keys', 'create', '1', '--nmae', 'x'], /^--nmae does not fit here\n/],
    [['accounts', 'list', 'x'], /^x does not fit here\n\n {2}accounts list$/],
    [
      ['accounts', 'callback', '1', '--none', '--test'],
      /^--none does not fit here\n(\n? {2}accounts callback .*){4}$/,
    ],
    [['accounts', 'lst'], /^there is no command accounts lst\n\n {2}accounts callback (?!.*keys create)/s],
    [['acounts', 'list'], /^there is no command acounts list; --help shows all$/],
    [[], /^npm run admin/],
    [['--help'], /^npm run admin/],
    [['shards', 'move', '--to', '0'], /^exactly one SHARD is needed/],
    [['shards', 'move', '1', '--to', 'x'], /^--to must be a whole number from 0/],
    [['environments', 'set', '1', '--validation', 'x'], /^validation must be strict or lenient$/],
    [
      ['environments', 'set', '1', '--limit', '__proto__=5'],
      /^there is no limit __proto__; the limits are track,/,
    ],
    [['people', 'invite', 'a', '--role', 'king'], /^role must be one of operator, administrator/],
    [['backup', 'restore', 'n'], /add --yes/],
  ] as const)
    await assert.rejects(read(...words), { message: why }, words.join(' '));
});

test('every command can be run: it has a route with an answer, or a usage line', () => {
  for (const [name, command] of namedCommands) {
    const routes = routesOf(name, command);
    assert.ok(routes.length > 0 || command.cli !== undefined, name);
    if (routes.length > 0) assert.ok(Object.hasOwn(administrationAnswers, name), name);
    const [line = ''] = command.cli?.split('   ') ?? [];
    assert.ok(usage.includes(line.slice(0, 40)), name);
    for (const part of command.checkedInside ?? []) assert.ok(Object.hasOwn(shapeOf(command), part), name);
  }
});
