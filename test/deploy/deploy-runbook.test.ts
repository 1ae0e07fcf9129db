// deploy/RUNBOOK.md: its commands, run in their order on a deployment with the history that they are for, do what the page
// says.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { usage } from '../../src/admin/command-line.js';
import type { TestAccount } from '../harness/accounts.js';
import { getToken, send, submitAccepted, untilComplete, untilStored } from '../harness/deletion.js';
import { withRedis } from '../harness/redis-client.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { readCompose } from '../support/compose.js';
import { parseYaml, readDeployFile, readYaml, root } from '../support/deploy-file.js';
import { readManifests } from '../support/kubernetes.js';
import {
  type Block,
  prelude,
  programsNamedIn,
  readBlocks,
  readOwnBlocks,
  runBlock,
  runStubbed,
} from '../support/runbook.js';
import { ownSluice } from '../support/sluice.js';

const text = ['RUNBOOK.md', 'START.md'].map((name) => readDeployFile(name)).join('\n');
const blocks = readBlocks(text);
const ran = new Set<Block>();
const folder = tempDir('runbook');
const composeSecrets = {
  REDIS_PASSWORD: 'secret',
  CLICKHOUSE_PASSWORD: 'secret',
  ADMIN_TOKEN: 'secret',
  PUBLIC_BASE_URL: 'https://events.example.com',
  GRAFANA_PASSWORD: 'secret',
};
const people = ['ada', 'bob', 'carol', 'dave'];

let account: TestAccount;
let backup: string;

const sluice = await ownSluice();
for (const identity of people) await sendEvent(identity);

async function run(section: string, more: NodeJS.ProcessEnv = {}): Promise<string> {
  const block = blocks.find((each) => each.section === section && !ran.has(each));
  assert.ok(block, `${section} has one more block`);
  ran.add(block);
  return runBlock(sluice, block, folder, more);
}

function sendEvent(identity: string): Promise<void> {
  return send(sluice, '/api/track', { app_id: sluice.appId, event: 'Seen', identity });
}

/** The users whose events can be queried. */
async function seen(): Promise<string[]> {
  const rows = await sluice.rows<{ identity: string }>(
    'SELECT DISTINCT identity FROM events ORDER BY identity',
  );
  return rows.map(({ identity }) => identity);
}

test('names programs and commands that exist', () => {
  for (const path of programsNamedIn(text)) assert.ok(existsSync(path), path);
  for (const definition of prelude.trim().split('\n').slice(1))
    assert.ok(text.includes(definition), definition);
  const known = usage.split('\n').map((line) => line.trim());
  const named = [...text.matchAll(/\badmin ((?!\w+ main)[a-z-]+(?: [a-z]+)?)/g)].map(([, words]) =>
    String(words),
  );
  for (const words of named.filter((each) =>
    /^(accounts|environments|rejected|keys|write-keys|failed|deletions|backup)\b/.test(each),
  )) {
    const [subject, verb] = words.split(' ');
    assert.ok(
      known.some((line) => line.startsWith(`${subject} `) && line.includes(verb ?? '')),
      words,
    );
  }
});

describe('Commands: what each installation defines', () => {
  const [variants = '', shared = ''] = readOwnBlocks(text, 'Commands');
  const definitions = new Map(
    variants.split(/^# /m).map((part) => {
      const end = part.indexOf('\n');
      return [part.slice(0, end), part.slice(end)] as const;
    }),
  );
  const definitionFor = (start: string) => {
    const found = [...definitions].find(([title]) => title.startsWith(start));
    assert.ok(found, start);
    return found[1];
  };
  const asked = `${shared}
    redis zcard '{s0}:segments'
    admin accounts create "Shop of Ada"
    echo "$API $ADMIN $ADMIN_TOKEN"`;

  test('under npm start runs the programs of the clone', () => {
    const clone = mkdtempSync(join(folder, 'clone-'));
    mkdirSync(join(clone, '.data'));
    writeFileSync(join(clone, '.data/admin-token'), 'token\n');
    const { commands, printed } = runStubbed(definitionFor('npm start') + asked, ['node'], clone);
    assert.deepEqual(commands, [
      ['node', 'dist/src/admin/redis.js', 'zcard', '{s0}:segments'],
      ['node', 'dist/src/admin/main.js', 'accounts', 'create', 'Shop of Ada'],
    ]);
    assert.equal(printed, 'http://127.0.0.1:8080 http://127.0.0.1:8081 token\n');
  });

  test('in Compose runs them beside a worker, since Stop and drain stops the API', () => {
    const clone = mkdtempSync(join(folder, 'clone-'));
    mkdirSync(join(clone, 'deploy'));
    writeFileSync(
      join(clone, 'deploy/.env'),
      'ADMIN_TOKEN=token\nPUBLIC_BASE_URL=https://events.example.com\n',
    );
    const { commands, printed } = runStubbed(definitionFor('Compose') + asked, ['docker'], clone);
    const before = ['docker', 'compose', '-f', 'deploy/compose.yaml', 'exec', '-T', 'worker', 'node'];
    assert.deepEqual(commands, [
      [...before, 'dist/src/admin/redis.js', 'zcard', '{s0}:segments'],
      [...before, 'dist/src/admin/main.js', 'accounts', 'create', 'Shop of Ada'],
    ]);
    assert.equal(printed, 'https://events.example.com http://127.0.0.1:8081 token\n');
    const { worker, proxy } = readCompose(composeSecrets).services;
    assert.ok(worker && proxy?.ports?.includes('127.0.0.1:8081:8081'));
    const [stopping = ''] = readOwnBlocks(text, 'Stop and drain');
    const stopped = runStubbed(stopping, ['docker', 'kubectl', 'systemctl'], clone).commands;
    assert.deepEqual(stopped[0], ['docker', 'compose', '-f', 'deploy/compose.yaml', 'stop', 'proxy', 'api']);
  });

  test('on Kubernetes runs them in a worker, and reaches both ports by forwarding them', () => {
    const { commands, printed } = runStubbed(
      `${definitionFor('Kubernetes')} wait; ${asked}`,
      ['kubectl'],
      folder,
      'dG9rZW4=',
    );
    const said = commands.map((words) => words.slice(3).join(' '));
    for (const words of [
      'port-forward service/sluice 8080:80',
      'port-forward service/sluice-admin 8081:8081',
      'exec deploy/sluice-worker -- node dist/src/admin/redis.js zcard {s0}:segments',
      'exec deploy/sluice-worker -- node dist/src/admin/main.js accounts create Shop of Ada',
    ])
      assert.ok(said.includes(words), words);
    assert.match(printed, /http:\/\/127\.0\.0\.1:8080 http:\/\/127\.0\.0\.1:8081 token$/m);
  });

  test('with systemd runs them with the environment of the units', () => {
    const env = join(folder, 'sluice.env');
    writeFileSync(env, 'ADMIN_TOKEN=token\nREDIS_URL=redis://there\n');
    const defined = definitionFor('systemd')
      .replaceAll('/etc/sluice/sluice.env', env)
      .replaceAll('/opt/sluice', folder);
    const { commands, printed } = runStubbed(`${defined}${asked}`, ['node'], folder);
    assert.deepEqual(commands[0], ['node', 'dist/src/admin/redis.js', 'zcard', '{s0}:segments']);
    assert.equal(printed, 'http://127.0.0.1:8080 http://127.0.0.1:8081 token\n');
  });

  test('no other block is wrong for the shell, nor names an object of Kubernetes, a service or a file that is not there', () => {
    const objects = new Set(
      readManifests().map(({ kind, metadata }) => `${kind.toLowerCase()}/${metadata.name}`),
    );
    const services = Object.keys(readCompose(composeSecrets).services);
    const headings = [...text.matchAll(/^#{2,3} (.*)$/gm)].map(([, heading]) => String(heading));
    for (const block of headings.flatMap((heading) => readOwnBlocks(text, heading))) {
      const { status, stderr } = spawnSync('bash', ['-n', '-c', block], { encoding: 'utf8' });
      assert.equal(status, 0, `${block}\n${stderr}`);
      for (const [, kind = '', name = ''] of block.matchAll(
        /(?<=kubectl -n sluice .*)\b(deploy|deployment|statefulset|service|job)\/(sluice[\w-]*|redis|clickhouse)/g,
      ))
        assert.ok(objects.has(`${kind === 'deploy' ? 'deployment' : kind}/${name}`), `${kind}/${name}`);
      for (const [, path = ''] of block.matchAll(/-[fk] (deploy\/[\w./-]+)/g))
        assert.ok(existsSync(join(root, path)), path);
      for (const [, words = ''] of block.matchAll(/compose\.yaml stop ([\w ]+)/g))
        for (const word of words.trim().split(' ')) assert.ok(services.includes(word), word);
    }
  });

  test('the operator of Prometheus gets the rules as they are', () => {
    const [block = ''] = readOwnBlocks(text, 'On Kubernetes').slice(-1);
    const { commands, read } = runStubbed(`cd '${root}'; ${block}`, ['kubectl'], folder);
    assert.deepEqual(commands, [['kubectl', 'apply', '-f', '-']]);
    const [rule] = parseYaml(read, 'PrometheusRule') as [{ kind: string; spec: unknown }];
    assert.equal(rule.kind, 'PrometheusRule');
    assert.deepEqual(rule.spec, readYaml('prometheus', 'sluice.rules.yml'));
  });
});

test('The first account: makes an account, and a link for its operator', async () => {
  const said = await run('The first account');
  assert.match(said, /"name":"Shop"/);
  assert.match(said, /"url":"http.*\/invitation#/);
});

test('Look: shows what there is', async () => {
  await untilStored(sluice);
  const shown = await run('Look');
  assert.match(shown, /"ready":true/);
  assert.match(shown, /^sluice_backlog_oldest_seconds\{shard="0"\} 0$/m);
  assert.match(shown, /stored_events/);
  assert.match(shown, /^aof_enabled:1/m);
});

test('Stop and drain: sees the backlog empty', async () => {
  assert.match(await run('Stop and drain'), /^0$/m);
});

test('Keys: rotates the API key on the command line and over HTTP, and makes a write key', async () => {
  assert.match(await run('Keys, tokens and passwords'), /"last_used_at":null,"expires_at":"/);
  const [, apiKey] = /"api_key":"([^"]+)"/.exec(await run('Keys, tokens and passwords')) ?? [];
  account = { accountId: sluice.bootstrap.account_id, appIds: [sluice.appId], apiKey: String(apiKey) };
  assert.match(await run('Keys, tokens and passwords'), /"write_key":"slw_[\s\S]*"name":"shop, 2026"/);
  await run('Keys, tokens and passwords');
  assert.match(await getToken(sluice, account), /./);
});

test('Back up: makes a backup', async () => {
  const shown = await run('Back up');
  assert.match(shown, /"status":"complete"/);
  [, backup = ''] = /"name":"(\w+)"/.exec(shown) ?? [];
  assert.match(backup, /^\d{8}T\d{6}Z$/);
});

test('Restore: brings back what the backup holds, without the people who were deleted since', async () => {
  const request = await submitAccepted(sluice, await getToken(sluice, account), [{ identity: 'ada' }]);
  await untilComplete(sluice, await getToken(sluice, account), request);
  await sendEvent('frank');
  await untilStored(sluice);
  const shown = await run('Restore ClickHouse from a backup', { BACKUP: backup });
  assert.match(shown, /"deleted_again":\{"requests":1,"rows":1\},"submit_again":\[\]/);
  assert.deepEqual(await seen(), ['bob', 'carol', 'dave']);
});

test('Redis is lost: the state is what it was, not what the backup held', async () => {
  const states = async () =>
    ((await sluice.admin('deletions', 'list')) as { deletion_request_id: string; status: string }[])
      .map(({ deletion_request_id, status }) => `${deletion_request_id} ${status}`)
      .sort();
  const lists = async () => [await sluice.admin('accounts', 'list'), await states()];
  const known = await lists();
  await until(
    () => withRedis(sluice, async (redis) => (await redis.zcard('{registry}:uncopied')) === 0),
    'the requests are copied',
  );
  await withRedis(sluice, (redis) => redis.flushall());
  await until(
    async () => (await fetch(`${sluice.baseUrl}/health/ready`)).status === 503,
    'the API sees that the state is gone',
  );
  const shown = await run('Redis is lost');
  assert.match(shown, /"state":"restored"/);
  assert.deepEqual(await lists(), known);
  // The key that was rotated before the backup still opens, and the one before that does not.
  assert.match(await getToken(sluice, account), /./);
});

test('ClickHouse is away: shows how long there is room', async () => {
  await sluice.clickhouse.stop();
  await sendEvent('grace');
  assert.match(await run('ClickHouse is away'), /^sluice_backlog_rows\{shard="0"\} [1-9]/m);
  await sluice.clickhouse.restart();
  await untilStored(sluice);
  assert.deepEqual(await seen(), ['bob', 'carol', 'dave', 'grace']);
});

test('Alerts: the commands that look into refused rows and failing deletions', async () => {
  assert.match(await run('SluiceRowsQuarantined'), /"retried":0/);
  assert.match(await run('SluiceDeletionsFail'), /"status":"complete"/);
  assert.doesNotMatch(await run('SluicePartsSetAside'), /reason/);
});

test('Sizing: says what a row of each table takes', async () => {
  assert.match(await run('Sizing'), /stored_events[^\n]* [1-9][\d.]*/);
});

test('no block was left out', () => {
  assert.deepEqual(
    blocks.filter((block) => !ran.has(block)).map(({ section, commands }) => `${section}: ${commands}`),
    [],
  );
});

test('the disk of the backups is the one that the ClickHouse of compose.yaml has', () => {
  const xml = readDeployFile('clickhouse/sluice.xml');
  assert.match(xml, /<backups>\s*<type>local<\/type>\s*<path>\/backups\/<\/path>/);
  assert.match(xml, /<allowed_disk>backups<\/allowed_disk>/);
  const compose = readYaml<{ services: { clickhouse: { volumes: string[] } } }>('compose.yaml');
  assert.ok(compose.services.clickhouse.volumes.some((volume) => volume.endsWith(':/backups')));
});
