// deploy/kubernetes: valid objects that fit each other and the programs. Not run on a cluster here.

import assert from 'node:assert/strict';
import { copyFileSync, existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Ajv } from 'ajv';
import {
  readerGrants,
  serviceClusterGrants,
  serviceGrants,
  serviceRevokes,
  usersConfig,
} from '../../deploy/local/clickhouse/users.js';
import { assertConfigures, listVariables, operatorsToken } from '../harness/configured.js';
import { tempDir } from '../harness/temp-dir.js';
import { deployPath, readDeployFile, readYaml, root } from '../support/deploy-file.js';
import { kustomize } from '../support/kubectl.js';
import {
  findInvalid,
  findMistyped,
  type Labels,
  type Manifest,
  readManifests,
  selects,
} from '../support/kubernetes.js';
import { type End, lets, type Policy } from '../support/network-policies.js';
import { startStockClickHouse } from '../support/stock-clickhouse.js';

type EnvSource = {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: { secretKeyRef: Ref & { readonly optional?: boolean } };
};
type Ref = { readonly name: string; readonly key: string };
type Probe = {
  readonly httpGet?: { readonly path: string; readonly port: string };
  readonly tcpSocket?: { readonly port: string };
};
type Container = {
  readonly name: string;
  readonly image: string;
  readonly args?: readonly string[];
  readonly command?: readonly string[];
  readonly env?: readonly EnvSource[];
  readonly envFrom?: readonly { readonly configMapRef?: { readonly name: string } }[];
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[];
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly startupProbe?: Probe;
  readonly lifecycle?: { readonly preStop: { readonly exec: { readonly command: readonly string[] } } };
  readonly resources: { readonly limits: { readonly memory: string } };
  readonly securityContext: object;
};
type PodSpec = {
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[];
  readonly terminationGracePeriodSeconds?: number;
  readonly enableServiceLinks?: boolean;
  readonly automountServiceAccountToken?: boolean;
  readonly securityContext: {
    readonly runAsNonRoot?: boolean;
    readonly runAsUser?: number;
    readonly seccompProfile?: object;
  };
};
type Workload = Manifest & {
  readonly spec: {
    readonly selector?: { readonly matchLabels: Labels };
    readonly template: { readonly metadata: { readonly labels: Labels }; readonly spec: PodSpec };
  };
};
type Service = Manifest & {
  readonly spec: {
    readonly selector: Labels;
    readonly clusterIP?: string;
    readonly ports: readonly { readonly port: number; readonly targetPort: string }[];
  };
};
type Scaler = Manifest & {
  readonly spec: {
    readonly scaleTargetRef: { readonly kind: string; readonly name: string };
    readonly maxReplicas: number;
  };
};

const others = [
  'clickhouse.example.yaml',
  'ingress.example.yaml',
  'redis-elsewhere.yaml',
  'redis-replicas.example.yaml',
  'secret.example.yaml',
  'service-monitors.yaml',
];

/** The fields of the operator's type that are used here. */
const strings = { type: 'object', additionalProperties: { type: 'string' } };
const closed = (properties: object, required = Object.keys(properties)) => ({
  type: 'object',
  properties,
  required,
  additionalProperties: false,
});
const serviceMonitorSchema = closed({
  apiVersion: { const: 'monitoring.coreos.com/v1' },
  kind: { const: 'ServiceMonitor' },
  metadata: closed({ name: { type: 'string' }, namespace: { const: 'sluice' }, labels: strings }),
  spec: closed({
    selector: closed({ matchLabels: strings }),
    endpoints: {
      type: 'array',
      items: closed({
        port: { type: 'string' },
        path: { const: '/metrics' },
        interval: { type: 'string', pattern: '^[0-9]+s$' },
        relabelings: {
          type: 'array',
          items: closed({ targetLabel: { type: 'string' }, replacement: { type: 'string' } }),
        },
      }),
    },
  }),
});

const manifests = readManifests();

function ofKind<Kind extends Manifest = Manifest>(...kinds: readonly string[]): Kind[] {
  return manifests.filter(({ kind }) => kinds.includes(kind)) as unknown as Kind[];
}

function named<Kind extends Manifest = Manifest>(kind: string, name: string): Kind {
  const found = ofKind<Kind>(kind).find(({ metadata }) => metadata.name === name);
  assert.ok(found, `there is a ${kind} ${name}`);
  return found;
}

const workloads = ofKind<Workload>('Deployment', 'StatefulSet', 'Job');

function containersOf({ spec }: Workload): readonly Container[] {
  return [...(spec.template.spec.initContainers ?? []), ...spec.template.spec.containers];
}

function podsOf(selector: Labels): Workload[] {
  return workloads.filter(({ spec }) => selects(selector, spec.template.metadata.labels));
}

/** What a container's process finds in its environment when the ConfigMap has these settings besides, and the Secret all optional ones. */
function environmentOf(
  { env = [], envFrom = [] }: Container,
  given: Readonly<Record<string, string>> = {},
): Record<string, string> {
  const secret = readDeployFile('kubernetes', 'secret.example.yaml');
  const environment: Record<string, string> = {};
  for (const { configMapRef } of envFrom) {
    assert.ok(configMapRef);
    Object.assign(
      environment,
      named<Manifest & { data: object }>('ConfigMap', configMapRef.name).data,
      given,
    );
  }
  for (const { name, value, valueFrom } of env) {
    if (valueFrom !== undefined) {
      assert.equal(valueFrom.secretKeyRef.name, 'sluice');
      const { key, optional } = valueFrom.secretKeyRef;
      assert.ok(secret.includes(`\n  ${optional ? '# ' : ''}${key}: `), `the secret has ${key}`);
    }
    const secrets: Record<string, string> = {
      REDIS_URL: 'redis://default:secret@redis:6379',
      CLICKHOUSE_URL: 'https://user:secret@clickhouse.example.com:8443',
      OIDC_ISSUER: 'https://id.example.com',
    };
    environment[name] = value ?? (name === 'ADMIN_TOKEN' ? operatorsToken : (secrets[name] ?? 'secret'));
  }
  return environment;
}

describe('each object', () => {
  const known = manifests.filter(({ kind }) => kind !== 'ServiceMonitor');
  for (const { file, ...manifest } of known) {
    test(`${manifest.kind} ${manifest.metadata.name} of ${file} is valid`, () => {
      assert.deepEqual(findInvalid(manifest), []);
      if (manifest.kind !== 'Namespace') assert.equal(manifest.metadata.namespace, 'sluice');
    });
  }

  test('has no field that Kubernetes does not know', () => {
    const objects = known.map(({ file: _, ...manifest }) => manifest);
    assert.equal(findMistyped(objects), '');
    const misspelt = structuredClone(named<Workload>('Deployment', 'sluice-api')) as unknown as {
      spec: { template: { spec: Record<string, unknown> } };
    };
    misspelt.spec.template.spec.terminationGracePeriod = 30;
    assert.match(findMistyped([misspelt as unknown as Manifest]), /terminationGracePeriod/);
  });

  test('is applied by kustomize, unless it is a template, an example, or an alternative to another file', () => {
    const { resources, images } = readYaml<{ resources: string[]; images: { name: string }[] }>(
      'kubernetes',
      'kustomization.yaml',
    );
    const files = [...new Set(manifests.map(({ file }) => file.replace('kubernetes/', '')))];
    assert.deepEqual([...resources, ...others].sort(), files.sort());
    const ours = workloads.filter(({ metadata }) => metadata.name.startsWith('sluice')).flatMap(containersOf);
    for (const { image } of ours) assert.equal(image, images[0]?.name);
  });

  test('comes out of kustomize unchanged except for the image, from the files that are not applied, too', () => {
    const byName = ({ kind, metadata }: Manifest) => `${kind} ${metadata.name}`;
    const sorted = (objects: readonly Manifest[]) =>
      [...objects].sort((one, other) => (byName(one) < byName(other) ? -1 : 1));
    const objectsOf = (isWanted: (file: string) => boolean): Manifest[] =>
      manifests
        .filter(({ file }) => isWanted(file.replace('kubernetes/', '')))
        .map(({ file: _, ...manifest }) => manifest);

    const applied = JSON.stringify(sorted(objectsOf((file) => !others.includes(file)))).replaceAll(
      '"image":"sluice"',
      '"image":"registry.example.com/sluice:1.0.0"',
    );
    assert.deepEqual(sorted(kustomize(deployPath('kubernetes'))), JSON.parse(applied));

    const folder = tempDir('kustomize');
    for (const file of others) copyFileSync(deployPath('kubernetes', file), join(folder, file));
    const resources = others.map((file) => `  - ${file}\n`).join('');
    writeFileSync(
      join(folder, 'kustomization.yaml'),
      `apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n${resources}`,
    );
    assert.deepEqual(sorted(kustomize(folder)), sorted(objectsOf((file) => others.includes(file))));
  });

  test('for the operator of Prometheus has only fields that it knows', () => {
    const monitors = ofKind('ServiceMonitor').map(
      ({ file: _, ...monitor }: Manifest & { file?: string }) => monitor,
    );
    assert.equal(monitors.length, 2);
    const isMonitor = new Ajv({ allErrors: true }).compile(serviceMonitorSchema);
    for (const monitor of monitors) assert.ok(isMonitor(monitor), JSON.stringify(isMonitor.errors));
    const misspelt = JSON.parse(JSON.stringify(monitors[0]).replace('"relabelings"', '"relabelConfigs"'));
    assert.equal(isMonitor(misspelt), false);
  });

  test('holds no secret', () => {
    const { stringData } = named<Manifest & { stringData: Record<string, string> }>('Secret', 'sluice');
    for (const value of Object.values(stringData)) assert.equal(value, 'REPLACE_ME');
  });
});

describe('what objects say of each other', () => {
  test('workloads select their own pods', () => {
    for (const { metadata, spec } of workloads) {
      if (spec.selector === undefined) continue;
      const pods = podsOf(spec.selector.matchLabels).map((pod) => pod.metadata.name);
      assert.deepEqual(pods, [metadata.name]);
    }
  });

  test('services lead to ports that their pods have', () => {
    for (const { metadata, spec } of ofKind<Service>('Service')) {
      const pods = podsOf(spec.selector);
      assert.equal(pods.length, 1, metadata.name);
      const ports = pods.flatMap(containersOf).flatMap(({ ports = [] }) => ports.map(({ name }) => name));
      for (const { targetPort } of spec.ports) assert.ok(ports.includes(targetPort), metadata.name);
    }
  });

  test('the service for callers has the API port and not the admin port', () => {
    const callers = ofKind<Service>('Service').filter(({ spec }) => spec.clusterIP !== 'None');
    assert.deepEqual(
      callers.map(({ metadata, spec }) => [metadata.name, spec.ports.map(({ targetPort }) => targetPort)]),
      [['sluice', ['http']]],
    );
  });

  test('autoscalers and disruption budgets name objects that exist, separately for API and workers', () => {
    const targets = ofKind<Scaler>('HorizontalPodAutoscaler').map(({ spec }) => spec.scaleTargetRef);
    assert.deepEqual(targets.map(({ name }) => name).sort(), ['sluice-api', 'sluice-worker']);
    for (const { kind, name } of targets) assert.ok(!('replicas' in named<Workload>(kind, name).spec), name);
    const budgets = ofKind<Workload>('PodDisruptionBudget').map(({ spec }) =>
      podsOf(spec.selector?.matchLabels ?? {}).map(({ metadata }) => metadata.name),
    );
    assert.deepEqual(budgets.sort(), [
      ['clickhouse'],
      ['redis'],
      ['redis-replicas'],
      ['sluice-api'],
      ['sluice-worker'],
    ]);
  });

  test('the monitoring and the Ingress find services by their labels, names and ports', () => {
    type Monitor = Manifest & {
      readonly spec: {
        readonly selector: { readonly matchLabels: Labels };
        readonly endpoints: readonly { readonly port: string }[];
      };
    };
    type NamedPorts = { readonly spec: { readonly ports: readonly { readonly name: string }[] } };
    for (const { metadata, spec } of ofKind<Monitor>('ServiceMonitor')) {
      const found = ofKind<Service>('Service').filter((service) =>
        selects(spec.selector.matchLabels, service.metadata.labels),
      );
      assert.equal(found.length, 1, metadata.name);
      const ports = found.flatMap((service) => (service as unknown as NamedPorts).spec.ports);
      assert.deepEqual(
        ports.map(({ name }) => name),
        spec.endpoints.map(({ port }) => port),
      );
    }
    const [ingress] = ofKind('Ingress');
    const { service } = (
      ingress as unknown as {
        spec: {
          rules: [{ http: { paths: [{ backend: { service: { name: string; port: { name: string } } } }] } }];
        };
      }
    ).spec.rules[0].http.paths[0].backend;
    const target = named<Service>('Service', service.name) as unknown as NamedPorts;
    assert.ok(target.spec.ports.some(({ name }) => name === service.port.name));
  });

  test('network policies cover every pod in both directions, and open the admin ports to the monitoring only', () => {
    const policies = ofKind<Policy>('NetworkPolicy');
    const denied = policies.filter(
      ({ spec }) =>
        spec.podSelector.matchLabels === undefined && spec.ingress === undefined && spec.egress === undefined,
    );
    assert.deepEqual(
      denied.map(({ spec }) => spec.policyTypes),
      [['Ingress', 'Egress']],
    );
    const leaving = policies.filter(({ spec }) => spec.egress !== undefined);
    assert.deepEqual(leaving.map(({ metadata }) => metadata.name).sort(), [
      'clickhouse',
      'redis-replicas',
      'sluice-egress',
      'sluice-egress-clickhouse',
      'sluice-egress-https',
      'sluice-egress-redis',
      'sluice-egress-redis-replicas',
    ]);
    // No egress rule selects Redis, so it reaches nobody.
    for (const { spec } of leaving) {
      assert.ok(
        !podsOf(spec.podSelector.matchLabels ?? {}).some(({ metadata }) => metadata.name === 'redis'),
      );
    }
    const open = policies.flatMap(({ metadata, spec }) =>
      (spec.ingress ?? [])
        .filter(({ from }) => from === undefined)
        .flatMap(({ ports = [] }) => [metadata.name, ...ports]),
    );
    assert.deepEqual(open, ['sluice-api', { port: 'http', protocol: 'TCP' }]);
    for (const { metadata, spec } of policies) {
      const selector = spec.podSelector.matchLabels;
      if (selector !== undefined) assert.ok(podsOf(selector).length > 0, metadata.name);
    }
  });
});

describe('network policies', () => {
  const labelsOf = (kind: string, name: string) => named<Workload>(kind, name).spec.template.metadata.labels;
  const api = labelsOf('Deployment', 'sluice-api');
  const worker = labelsOf('Deployment', 'sluice-worker');
  const migrate = labelsOf('Job', 'sluice-migrate');
  const redis = labelsOf('StatefulSet', 'redis');
  const replicas = labelsOf('StatefulSet', 'redis-replicas');
  const clickhouse = labelsOf('StatefulSet', 'clickhouse');
  const all = ofKind<Policy & { file: string }>('NetworkPolicy');
  /** Without the examples of ClickHouse, and of a Redis elsewhere. */
  const applied = all.filter(({ file }) => !/example|elsewhere/.test(file));
  const inNamespace = (namespace: Labels): End => ({ pod: { app: 'any' }, namespace });
  const cluster = inNamespace({ 'kubernetes.io/metadata.name': 'kube-system' });

  test('let every process of Sluice out to names, Redis and ClickHouse, wherever they are', () => {
    for (const pod of [api, worker, migrate]) {
      for (const protocol of ['UDP', 'TCP']) {
        assert.ok(lets(applied, 'Egress', pod, cluster, 53, protocol), `names by ${protocol}`);
        const cache = { address: '169.254.20.10' };
        assert.ok(
          lets(applied, 'Egress', pod, cache, 53, protocol),
          `the node's cache of names by ${protocol}`,
        );
      }
      assert.ok(lets(applied, 'Egress', pod, { pod: redis }, 6379), 'Redis');
      for (const port of [8123, 8443]) {
        for (const address of ['203.0.113.7', '2001:db8::7', 'fd12::7'])
          assert.ok(lets(applied, 'Egress', pod, { address }, port), `ClickHouse at ${address}, ${port}`);
        const there = inNamespace({ 'sluice/clickhouse': 'true' });
        assert.ok(lets(applied, 'Egress', pod, there, port), `ClickHouse in another namespace, ${port}`);
      }
      for (const port of [6379, 6380]) {
        const [outside, inside] = [{ address: '192.0.2.7' }, inNamespace({ 'sluice/redis': 'true' })];
        for (const end of [outside, inside]) {
          assert.ok(lets(all, 'Egress', pod, end, port), `Redis elsewhere, ${port}`);
          assert.ok(!lets(applied, 'Egress', pod, end, port), 'without redis-elsewhere.yaml there is no way');
        }
      }
      for (const port of [6379, 26379])
        assert.ok(lets(all, 'Egress', pod, { pod: replicas }, port), `Redis with replicas, ${port}`);
      assert.ok(lets(all, 'Egress', pod, { pod: clickhouse }, 8123), 'ClickHouse of the example');
      for (const address of ['203.0.113.7', '2001:db8::7'])
        assert.ok(lets(applied, 'Egress', pod, { address }, 443), `callbacks to ${address}`);
    }
  });

  test('let nobody out to the addresses of the node and of the cluster, and Redis nowhere', () => {
    for (const address of ['169.254.169.254', 'fd00:ec2::254', 'fe80::1'])
      for (const port of [80, 443, 8123, 8443])
        assert.ok(!lets(all, 'Egress', worker, { address }, port), `${address}, ${port}`);
    for (const address of [
      '10.0.0.1',
      '172.16.0.1',
      '192.168.0.1',
      '100.64.0.1',
      'fd12::7',
      '::1',
      '::ffff:10.0.0.1',
    ])
      assert.ok(!lets(all, 'Egress', worker, { address }, 443), address);
    for (const end of [cluster, { pod: api }, { pod: clickhouse }, { address: '203.0.113.7' }])
      for (const port of [53, 443, 6379, 8080, 8123]) assert.ok(!lets(all, 'Egress', redis, end, port));
    assert.ok(!lets(all, 'Egress', clickhouse, { address: '203.0.113.7' }, 443));
  });

  test('let in only the callers that each pod is for', () => {
    const stranger: End = inNamespace({ 'kubernetes.io/metadata.name': 'default' });
    const monitoring: End = inNamespace({ 'kubernetes.io/metadata.name': 'monitoring' });
    assert.ok(lets(all, 'Ingress', api, stranger, 'http'));
    for (const pod of [api, worker]) {
      assert.ok(lets(all, 'Ingress', pod, monitoring, 'admin'));
      assert.ok(!lets(all, 'Ingress', pod, stranger, 'admin'));
    }
    for (const pod of [api, worker, migrate]) {
      assert.ok(lets(all, 'Ingress', redis, { pod }, 'redis'));
      assert.ok(lets(all, 'Ingress', clickhouse, { pod }, 'http'));
      assert.ok(!lets(all, 'Ingress', clickhouse, { pod }, 'native'));
    }
    for (const end of [stranger, { pod: clickhouse }]) {
      assert.ok(!lets(all, 'Ingress', redis, end, 'redis'));
      for (const port of ['redis', 'sentinel']) assert.ok(!lets(all, 'Ingress', replicas, end, port));
    }
    for (const pod of [api, worker, migrate, replicas])
      for (const port of ['redis', 'sentinel']) assert.ok(lets(all, 'Ingress', replicas, { pod }, port));
    for (const port of [6379, 26379]) assert.ok(lets(all, 'Egress', replicas, { pod: replicas }, port));
    assert.ok(lets(all, 'Egress', replicas, cluster, 53, 'UDP'));
    assert.ok(lets(all, 'Ingress', clickhouse, { pod: { 'sluice/queries': 'true' } }, 'http'));
    assert.ok(!lets(all, 'Ingress', clickhouse, stranger, 'http'));
    for (const direction of ['Ingress', 'Egress'] as const)
      assert.ok(
        lets(all, direction, clickhouse, { pod: clickhouse }, direction === 'Ingress' ? 'native' : 9000),
        'the servers reach each other',
      );
    assert.ok(lets(all, 'Egress', clickhouse, cluster, 53, 'UDP'));
    assert.ok(lets(all, 'Egress', clickhouse, { address: '169.254.20.10' }, 53, 'UDP'));
  });
});

describe('pods', () => {
  const ours = workloads.filter(
    ({ metadata }) => !['clickhouse', 'redis', 'redis-replicas'].includes(metadata.name),
  );

  test('run programs that exist, with an environment that they understand', () => {
    for (const container of ours.flatMap(containersOf)) {
      const [command, program] = container.args ?? [];
      assert.equal(command, 'node');
      assert.ok(existsSync(join(root, String(program))), program);
      assertConfigures(environmentOf(container), `the container ${container.name}`);
    }
  });

  test('give a process each setting of config.yaml, those in comments too', () => {
    const given = Object.fromEntries(
      [...readDeployFile('kubernetes', 'config.yaml').matchAll(/^ {2}# ([A-Z_]+): (.*)$/gm)].map(
        ([, name = '', value = '']) => [name, value],
      ),
    );
    assert.ok(Object.keys(given).length >= 2);
    const own = ['ADMIN_TOKEN', 'CLICKHOUSE_URL', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET', 'OIDC_ISSUER'];
    for (const container of ours.flatMap(containersOf)) {
      assertConfigures(environmentOf(container, given), container.name);
      const all = Object.fromEntries(listVariables().map((name) => [name, `of ${name}`]));
      const environment = environmentOf(container, all);
      const fixed = Object.keys(all).filter((name) => environment[name] !== all[name]);
      const known = [...own, 'REDIS_URL', 'WORKER_ADMIN_PORT'];
      assert.deepEqual(
        fixed.filter((name) => !known.includes(name)),
        [],
      );
    }
  });

  test('give no variable of Docker links to a process that reads REDIS_PORT', () => {
    for (const { metadata, spec } of workloads) {
      assert.equal(spec.template.spec.enableServiceLinks, false, metadata.name);
    }
  });

  test('have the ports that their environment says, and probes that lead there', () => {
    const api = named<Workload>('Deployment', 'sluice-api').spec.template.spec.containers[0];
    const worker = named<Workload>('Deployment', 'sluice-worker').spec.template.spec.containers[0];
    assert.ok(api && worker);
    const { port, adminPort } = assertConfigures(environmentOf(api), 'api');
    const { workerAdminPort } = assertConfigures(environmentOf(worker), 'worker');
    assert.deepEqual(api.ports, [
      { name: 'http', containerPort: port },
      { name: 'admin', containerPort: adminPort },
    ]);
    assert.deepEqual(worker.ports, [{ name: 'admin', containerPort: workerAdminPort }]);
    for (const { startupProbe, livenessProbe, readinessProbe, ports } of [api, worker]) {
      const probed = ports?.[0]?.name;
      assert.deepEqual(startupProbe?.httpGet, { path: '/health/live', port: probed });
      assert.deepEqual(livenessProbe?.httpGet, { path: '/health/live', port: probed });
      assert.deepEqual(readinessProbe?.httpGet, { path: '/health/ready', port: probed });
    }
  });

  test('are given longer to end than they take', () => {
    const grace = (name: string) =>
      named<Workload>('Deployment', name).spec.template.spec.terminationGracePeriodSeconds ?? 0;
    const { lifecycle } = named<Workload>('Deployment', 'sluice-api').spec.template.spec
      .containers[0] as Container;
    assert.deepEqual(lifecycle?.preStop.exec.command, ['sleep', '5']);
    // A worker leaves its jobs after 20 s; an API process answers within 2 s, and a list of users within 5 s.
    assert.ok(grace('sluice-worker') >= 25);
    assert.ok(grace('sluice-api') >= 5 + 5 + 5);
  });

  test('run in a namespace that accepts only confined pods', () => {
    const { metadata } = named('Namespace', 'sluice');
    assert.equal(metadata.labels?.['pod-security.kubernetes.io/enforce'], 'restricted');
    for (const { spec } of workloads) {
      const { seccompProfile } = spec.template.spec.securityContext;
      assert.deepEqual(seccompProfile, { type: 'RuntimeDefault' });
    }
  });

  test('are confined: no root, nothing writable, no capability, no token, a limit to memory', () => {
    for (const workload of workloads) {
      const { securityContext, automountServiceAccountToken } = workload.spec.template.spec;
      assert.equal(securityContext.runAsNonRoot, true);
      assert.ok((securityContext.runAsUser ?? 0) > 0);
      assert.equal(automountServiceAccountToken, false);
      for (const { name, securityContext, resources } of containersOf(workload)) {
        assert.deepEqual(
          securityContext,
          { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
          name,
        );
        assert.match(resources.limits.memory, /^\d+[MG]i$/);
      }
    }
  });

  test('of workers are at most as many as the tick can give jobs to', () => {
    const { data } = named<Manifest & { data: Record<string, string> }>('ConfigMap', 'sluice');
    const scaler = named<Scaler>('HorizontalPodAutoscaler', 'sluice-worker');
    assert.equal(Number(data.WORKER_PROCESSES), scaler.spec.maxReplicas);
  });
});

describe('three ClickHouse servers', () => {
  const { data } = named<Manifest & { data: Record<string, string> }>('ConfigMap', 'clickhouse');
  const { spec } = named<Workload & { spec: { replicas: number; serviceName: string } }>(
    'StatefulSet',
    'clickhouse',
  );

  test('know each other as a cluster, a shard each, in the order of their names', () => {
    const hosts = [...(data['cluster.xml'] ?? '').matchAll(/<shard><replica><host>([^<]+)<\/host>/g)];
    assert.deepEqual(
      hosts.map(([, host]) => host),
      Array.from({ length: spec.replicas }, (_, number) => `clickhouse-${number}.${spec.serviceName}`),
    );
  });

  test('have the configuration of a single server, and its rights with the rights that several servers need', () => {
    assert.equal(data['sluice.xml'], readDeployFile('clickhouse', 'sluice.xml'));
    const profile = (text = '') =>
      /<default>\s*(?:<!--[^>]*-->\s*)?(<http_send_timeout>\d+<)/.exec(text)?.[1];
    const passwords = { sluice: '', reader: '', launcher: '' };
    assert.equal(profile(data['users.xml']), profile(usersConfig('sluice', passwords)));
    assert.equal(profile(data['users.xml']), profile(readDeployFile('clickhouse', 'profile.xml')));
    assert.ok(profile(data['users.xml']) !== undefined);
    const users = [...(data['users.xml'] ?? '').matchAll(/<query>([^<]+)<\/query>/g)].map(
      ([, query]) => query,
    );
    assert.deepEqual(users, [
      ...[...serviceGrants('sluice'), ...serviceClusterGrants].map((grant) => `GRANT ${grant}`),
      ...serviceRevokes('sluice').map((right) => `REVOKE ${right}`),
      ...readerGrants('sluice').map((grant) => `GRANT ${grant}`),
    ]);
  });

  test('start with it, and let the service and readers in, with their rights', async (context) => {
    const noDefault = '<default remove="1"/>';
    const passwords = { SLUICE_PASSWORD: 'theirs', READER_PASSWORD: 'reads', CLUSTER_SECRET: 'known' };
    const server = await startStockClickHouse(
      {
        'cluster.xml': (data['cluster.xml'] ?? '')
          .replace('<listen_host>0.0.0.0</listen_host>', '')
          .replace('::', '127.0.0.1'),
      },
      // The embedded engine starts as `default`.
      { users: (data['users.xml'] ?? '').replace(noDefault, ''), env: passwords },
    );
    context.after(() => server.kill9());
    const ask = async (user: string, password: string, sql: string) => {
      const headers = { 'X-ClickHouse-User': user, 'X-ClickHouse-Key': password };
      return (await fetch(server.origin, { method: 'POST', body: sql, headers })).text();
    };
    const shards = "SELECT count() FROM system.clusters WHERE cluster = 'sluice'";
    assert.equal(await ask('sluice', 'theirs', shards), '3\n');
    assert.equal(await ask('sluice', 'theirs', "SELECT getSetting('http_send_timeout')"), '180\n');
    assert.equal(await ask('sluice', 'theirs', 'CREATE DATABASE sluice'), '');
    assert.match(await ask('sluice', 'theirs', "SELECT * FROM file('a', 'CSV')"), /ACCESS_DENIED/);
    assert.equal(await ask('reader', 'reads', 'SELECT 1'), '1\n');
    assert.match(await ask('reader', 'reads', 'DROP DATABASE sluice'), /READONLY|ACCESS_DENIED/);
    assert.match(await ask('reader', 'guessed', 'SELECT 1'), /AUTHENTICATION_FAILED/);
    assert.ok(data['users.xml']?.includes(noDefault));
  });
});
