// deploy/compose.yaml and what its services are started with. Not run by a container engine here.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type Config, readConfig } from '../../src/config.js';
import { assertConfigures, listVariables, operatorsToken } from '../harness/configured.js';
import { type ComposeFile, type ComposeService, findInvalid, readCompose } from '../support/compose.js';
import { readRedisSettings } from '../support/configured-redis.js';
import { deployPath, parseYaml, readDeployFile, readEnvironment, root } from '../support/deploy-file.js';

const variables = {
  REDIS_PASSWORD: 'secret',
  CLICKHOUSE_PASSWORD: 'secret',
  ADMIN_TOKEN: operatorsToken,
  PUBLIC_BASE_URL: 'https://events.example.com',
  GRAFANA_PASSWORD: 'secret',
};
const compose = readCompose(variables);
const processes = ['migrate', 'state', 'api', 'worker'];
/** The variables that open the console. */
const ofApi = ['ADMIN_TOKEN', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET', 'OIDC_ISSUER'];

function service(name: string, { services }: ComposeFile = compose): ComposeService {
  const found = services[name];
  assert.ok(found, `there is a service ${name}`);
  return found;
}

/** The configuration of a process of Sluice when deploy/.env has these variables besides the secrets. */
function configOf(name: string, given: Readonly<Record<string, string>> = {}): Config {
  const { environment = {} } = service(name, readCompose({ ...variables, ...given }));
  const { REDIS_PASSWORD, CLICKHOUSE_PASSWORD, GRAFANA_PASSWORD, ...env } = environment;
  assert.equal(GRAFANA_PASSWORD, '');
  return assertConfigures(
    Object.fromEntries(Object.entries(env).map(([key, value]) => [key, String(value)])),
    name,
  );
}

test('follows the Compose specification', () => {
  assert.deepEqual(findInvalid(compose), []);
  const misspelt = { services: { api: { image: 'sluice', stop_grace: '30s' } } };
  assert.deepEqual(findInvalid(misspelt), ['/services/api must NOT have additional properties']);
});

test('asks for each secret that has no value', () => {
  for (const name of Object.keys(variables)) {
    assert.throws(() => readCompose({ ...variables, [name]: '' }), new RegExp(`variable ${name} is missing`));
  }
});

test('has an example of its environment that names what it asks for and holds no secret', () => {
  const example = readEnvironment('compose.env.example');
  for (const name of Object.keys(variables)) assert.equal(example[name], '', name);
  const text = readDeployFile('compose.yaml');
  const settings = listVariables();
  const named = [...readDeployFile('compose.env.example').matchAll(/^(?:# )?([A-Z_]+)=/gm)].map(
    ([, name = '']) => name,
  );
  for (const name of named.filter((each) => each !== 'COMPOSE_PROJECT_NAME'))
    assert.ok(settings.includes(name) || text.includes(`\${${name}:`), `something reads ${name}`);
});

test('gives every process each setting of deploy/.env, except what it sets itself', () => {
  const given = Object.fromEntries(listVariables().map((name) => [name, `of ${name}`]));
  const { services } = readCompose({ ...variables, ...given });
  const fixed = ['ADMIN_HOST', 'ADMIN_PORT', 'HOST', 'PORT', 'TRUSTED_PROXIES'];
  for (const name of processes) {
    const { environment = {} } = services[name] as ComposeService;
    const own = [
      ...fixed,
      ...(name === 'api' ? [] : ofApi),
      ...(name === 'worker' ? ['WORKER_ADMIN_PORT'] : []),
    ];
    assert.deepEqual(
      Object.keys(given).filter((each) => environment[each] !== given[each]),
      own.toSorted(),
      name,
    );
    for (const each of name === 'api' ? [] : ofApi) assert.equal(environment[each], '', `${name} ${each}`);
  }
  const example = readDeployFile('compose.env.example');
  for (const name of ['HOST', 'PORT', 'TRUSTED_PROXIES', 'WORKER_ADMIN_PORT'])
    assert.match(example, new RegExp(`except .*\\b${name}\\b.*`));
});

test('takes the address of the API and the number of shards from the shell too', () => {
  const shell = { PUBLIC_BASE_URL: 'https://other.example.com', SHARDS: '4' };
  for (const given of [variables, { ...variables, SHARDS: '2' }]) {
    const { services } = readCompose(given, shell);
    for (const name of processes) {
      const { PUBLIC_BASE_URL, SHARDS } = services[name]?.environment ?? {};
      assert.deepEqual({ PUBLIC_BASE_URL, SHARDS: String(SHARDS) }, shell, name);
    }
    assert.equal(services.proxy?.environment?.PUBLIC_BASE_URL, shell.PUBLIC_BASE_URL);
  }
  assert.deepEqual([configOf('api').shards, configOf('api').areShardsGiven], [1, false]);
});

test('publishes the console where deploy/.env says, and names that address in invitations', () => {
  const given = { ADMIN_HOST: '10.0.0.5', ADMIN_PORT: '9000' };
  assert.ok(service('proxy', readCompose({ ...variables, ...given })).ports?.includes('10.0.0.5:9000:8081'));
  const { adminHost, adminPort, adminBaseUrl } = configOf('api', given);
  assert.deepEqual([adminHost, adminPort, adminBaseUrl], ['0.0.0.0', 8081, 'http://10.0.0.5:9000']);
  assert.equal(configOf('api').adminBaseUrl, 'http://127.0.0.1:8081');
  for (const [ADMIN_HOST, reachable] of [
    ['0.0.0.0', '127.0.0.1'],
    ['[::]', '[::1]'],
  ] as const)
    assert.equal(configOf('worker', { ADMIN_HOST }).adminBaseUrl, `http://${reachable}:8081`);
  const named = 'https://console.example.com';
  assert.equal(configOf('worker', { ADMIN_BASE_URL: named }).adminBaseUrl, named);
});

test('takes several ClickHouse servers, and a Redis, that are elsewhere', () => {
  const given = {
    CLICKHOUSE_URL: 'http://sluice:secret@one.example.com:8123,http://sluice:secret@two.example.com:8123',
    CLICKHOUSE_CLUSTER: 'pair',
    SHARDS: '4',
    REDIS_URL: 'redis-sentinel://default:secret@10.0.0.1:26379/sluice',
    REDIS_REPLICAS_ACK: '1',
  };
  for (const name of processes) {
    const config = configOf(name, given);
    assert.deepEqual(config.clickhouseUrls, given.CLICKHOUSE_URL.split(','));
    assert.deepEqual(
      [config.clickhouseCluster, config.clickhouseTables, config.shards],
      ['pair', 'plain', 4],
    );
    assert.deepEqual([config.redisSentinels?.name, config.redisReplicasAck], ['sluice', 1]);
    assert.ok(
      service(name).networks?.some((network) => compose.networks[network]?.internal !== true),
      `${name} gets out`,
    );
  }
});

test('gives ClickHouse the settings and the profile that the service relies on', () => {
  const mounted = (service('clickhouse').volumes ?? []).filter((volume) =>
    volume.startsWith('./clickhouse/'),
  );
  assert.deepEqual(mounted, [
    './clickhouse/sluice.xml:/etc/clickhouse-server/config.d/sluice.xml:ro',
    './clickhouse/profile.xml:/etc/clickhouse-server/users.d/profile.xml:ro',
  ]);
});

test('names only services, volumes and files that exist', () => {
  for (const [name, { depends_on = [], volumes = [], build }] of Object.entries(compose.services)) {
    const needed = Array.isArray(depends_on) ? depends_on : Object.keys(depends_on);
    for (const other of needed) assert.ok(compose.services[other], `${name} depends on ${other}`);
    for (const volume of volumes) {
      const source = String(volume.split(':')[0]);
      const there = source.startsWith('.') ? existsSync(deployPath(source)) : source in compose.volumes;
      assert.ok(there, `${name} mounts ${source}`);
    }
    if (build !== undefined) assert.ok(existsSync(join(deployPath(), build.context, build.dockerfile)));
  }
});

test('gives every process of Sluice a program and an environment that it understands', () => {
  for (const name of processes) {
    const { command, image } = service(name);
    assert.equal(image, 'sluice');
    const [program, path] = command ?? ['node', 'dist/src/main.js'];
    assert.equal(program, 'node');
    assert.ok(existsSync(join(root, String(path))), path);
    const config = configOf(name);
    assert.equal(new URL(config.redisUrl).hostname, 'redis');
    assert.equal(new URL(config.clickhouseUrls[0] as string).hostname, 'clickhouse');
  }
});

test('opens only the proxy to others, and no port of a service that may have several processes', () => {
  const open = Object.entries(compose.services).flatMap(([name, { ports = [] }]) =>
    ports.filter((port) => !port.startsWith('127.0.0.1:')).map((port) => `${name} ${port}`),
  );
  assert.deepEqual(open, ['proxy 80:80', 'proxy 443:443']);
  for (const name of ['api', 'worker', 'redis', 'clickhouse']) assert.equal(service(name).ports, undefined);
});

test('keeps networks apart: the proxy reaches no store, and no store the outside', () => {
  assert.equal(compose.networks.data?.internal, true);
  assert.equal(service('api').environment?.TRUSTED_PROXIES, compose.networks.front?.ipam?.config[0]?.subnet);
  const of = (network: string) =>
    Object.entries(compose.services)
      .filter(([, { networks = [] }]) => networks.includes(network))
      .map(([name]) => name);
  assert.deepEqual(of('front'), ['proxy', 'api']);
  assert.deepEqual(of('data'), ['redis', 'clickhouse', 'migrate', 'state', 'api', 'worker']);
  assert.deepEqual(of('monitoring'), [
    'migrate',
    'state',
    'api',
    'worker',
    'prometheus',
    'alertmanager',
    'grafana',
  ]);
});

test('gives every service a bound for its memory and its log', () => {
  for (const [name, { mem_limit, logging }] of Object.entries(compose.services)) {
    assert.match(String(mem_limit), /^\d+[mg]$/, name);
    assert.deepEqual(logging, { driver: 'json-file', options: { 'max-size': '50m', 'max-file': '5' } }, name);
  }
});

test('counts Redis as healthy only after a PONG, since redis-cli accepts LOADING as an answer', () => {
  assert.deepEqual(service('redis').healthcheck?.test, ['CMD-SHELL', 'redis-cli ping | grep -q PONG']);
});

test('confines the processes, restarts them, and gives them longer to end than they take', () => {
  for (const name of ['api', 'worker', 'proxy']) {
    const { read_only, cap_drop, restart, stop_grace_period } = service(name);
    assert.deepEqual(
      { read_only, cap_drop, restart },
      { read_only: true, cap_drop: ['ALL'], restart: 'unless-stopped' },
    );
    if (name !== 'proxy') assert.ok(Number.parseInt(stop_grace_period ?? '', 10) >= 25);
  }
  const restarted = Object.entries(compose.services).filter(
    ([, { restart }]) => restart !== 'unless-stopped',
  );
  assert.deepEqual(restarted.map(([name]) => name).sort(), ['migrate', 'state']);
  assert.deepEqual([service('migrate').restart, service('state').restart], ['no', 'no']);
});

const kept = ['appendonly', 'appendfsync', 'maxmemory-policy', 'save', 'lazyfree-lazy-expire', 'maxmemory'];
const keeping = {
  appendonly: 'yes',
  appendfsync: 'always',
  'maxmemory-policy': 'noeviction',
  save: '',
  'lazyfree-lazy-expire': 'yes',
};

test('starts a Redis that keeps what it acknowledges', async () => {
  const command = service('redis').command ?? [];
  const { maxmemory, requirepass, ...settings } = await readRedisSettings(
    command,
    [...kept, 'requirepass'],
    'secret1',
  );
  assert.deepEqual({ ...settings, requirepass }, { ...keeping, requirepass: 'secret1' });
  assert.ok(!command.some((word) => word.includes('secret')));
  assertFits(Number(maxmemory), configOf('api'));
});

test('the example for Kubernetes also starts a Redis that keeps what it acknowledges', async () => {
  const documents = parseYaml(readDeployFile('kubernetes/redis.yaml'), 'redis.yaml');
  const { data } = documents[0] as { data: Record<string, string> };
  const lines = String(data['redis.conf'])
    .split('\n')
    .filter((line) => !/^(#|dir |$)/.test(line));
  const { maxmemory, ...settings } = await readRedisSettings(
    ['redis-server', ...lines.map((line) => `--${line}`)],
    kept,
  );
  assert.deepEqual(settings, keeping);
  const [config] = parseYaml(readDeployFile('kubernetes/config.yaml'), 'config.yaml');
  assertFits(Number(maxmemory), readConfig((config as { data: Record<string, string> }).data));
});

/** Redis refuses writes at its limit; the service has to refuse records long before. */
function assertFits(maxmemory: number, { backlogBytesMax, claimBytesMax }: Config): void {
  const bytes = backlogBytesMax + claimBytesMax;
  assert.ok(bytes <= maxmemory / 2, `${bytes} of ${maxmemory}`);
}
