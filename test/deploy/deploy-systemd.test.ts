// deploy/systemd: units that systemd understands. Not run by a systemd here.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { readConfig } from '../../src/config.js';
import { assertConfigures, operatorsToken } from '../harness/configured.js';
import { readEnvironment, root } from '../support/deploy-file.js';
import { copyUnits, listUnits, systemdAnalyze, valuesOf } from '../support/systemd.js';

const units = listUnits();
const services = units.filter((name) => name.endsWith('.service'));

test('systemd finds nothing wrong with the units', () => {
  assert.deepEqual(units, [
    'sluice-api@.service',
    'sluice-migrate.service',
    'sluice-worker@.service',
    'sluice.target',
  ]);
  const folder = copyUnits();
  const verify = (where: string) =>
    systemdAnalyze(where, 'verify', '--man=no', '--recursive-errors=no', ...units.map((name) => `./${name}`));
  assert.deepEqual(verify(folder), { status: 0, said: '' });
  const misspelt = copyUnits((text) => text.replace('TimeoutStopSec=', 'TimeoutStop='));
  assert.match(verify(misspelt).said, /Unknown key.*'TimeoutStop'/);
});

test('services are confined: systemd rates their exposure below 2 of 10', () => {
  const folder = copyUnits();
  for (const name of services) {
    const { status, said } = systemdAnalyze(
      folder,
      'security',
      '--offline=yes',
      '--threshold=20',
      `./${name}`,
    );
    assert.equal(status, 0, said.split('\n').slice(-3).join('\n'));
  }
  const open = copyUnits((text) => text.replaceAll(/^(Protect|Restrict|Private|System|Capability).*$/gm, ''));
  assert.notEqual(
    systemdAnalyze(open, 'security', '--offline=yes', '--threshold=20', `./${services[0]}`).status,
    0,
  );
});

test('services run programs that exist', () => {
  const programs = services.flatMap((name) => valuesOf(name, 'ExecStart'));
  assert.equal(programs.length, 4);
  for (const command of programs) {
    const [, program] = /^\/usr\/bin\/node (dist\/\S+\.js)/.exec(command) ?? [];
    assert.ok(existsSync(join(root, String(program))), command);
  }
});

test('processes start again however they end, and are given longer to end than they take', () => {
  for (const name of ['sluice-api@.service', 'sluice-worker@.service']) {
    assert.deepEqual(valuesOf(name, 'Restart'), ['always']);
    assert.deepEqual(valuesOf(name, 'StartLimitIntervalSec'), ['0']);
    assert.ok(Number(valuesOf(name, 'TimeoutStopSec')[0]) >= 25);
  }
});

test('the example of the environment is one that the processes understand', () => {
  const example = readEnvironment('systemd', 'sluice.env.example');
  assert.throws(() => readConfig(example), /^Error: ADMIN_TOKEN must be random, not a placeholder/);
  const config = assertConfigures({ ...example, ADMIN_TOKEN: operatorsToken }, 'sluice.env.example');
  assert.equal(config.adminHost, '127.0.0.1');
  assert.equal(config.redisEmbedded, false);
  assert.equal(config.clickhouseEmbedded, false);
  for (const name of services)
    assert.deepEqual(valuesOf(name, 'EnvironmentFile'), ['/etc/sluice/sluice.env']);
});
