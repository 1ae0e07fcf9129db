// deploy/prometheus and deploy/grafana: the files are valid, and use metrics that a running deployment has.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from 'node:test';
import type { Registry } from 'prom-client';
import { outcomes } from '../../src/contract/outcomes.js';
import { adminRoutes } from '../../src/http/endpoints/admin.js';
import { listen, type Route } from '../../src/http/protocol/server.js';
import { createLog } from '../../src/log.js';
import { deploymentRegistry, processRegistry } from '../../src/metrics.js';
import { freePort } from '../harness/free-port.js';
import { gate } from '../harness/wait.js';
import { deployPath, readDeployFile, readYaml, root } from '../support/deploy-file.js';
import { declaredName, groupingLabelsOf, selectorsOf } from '../support/promql.js';
import { checkExpressions, promtool } from '../support/promtool.js';
import { sharedSluice } from '../support/sluice.js';
import { test } from '../support/test.js';

type Rule = {
  readonly alert?: string;
  readonly record?: string;
  readonly expr: string;
  readonly labels?: { readonly severity: string };
  readonly annotations?: { readonly summary: string; readonly runbook: string };
};
type Panel = {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string }[];
};

const { groups } = readYaml<{ groups: { rules: Rule[] }[] }>('prometheus', 'sluice.rules.yml');
const rules = groups.flatMap((group) => group.rules);
const alerts = rules.filter(({ alert }) => alert !== undefined);
const dashboard = JSON.parse(readDeployFile('grafana', 'dashboard.json')) as {
  panels: Panel[];
  annotations: { list: { expr: string }[] };
};
const shown = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));

/** The expressions as Grafana would send them. */
const sent = [...shown, ...dashboard.annotations.list.map(({ expr }) => expr)].map((expr) =>
  expr.replaceAll('$__rate_interval', '1m'),
);

const { adminUrl } = await sharedSluice();
const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
const declared = new Set([...metrics.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => String(name)));

describe('Prometheus accepts', () => {
  const folder = deployPath('prometheus');

  test('the configurations and the rules', () => {
    for (const file of ['prometheus.yml', 'prometheus-kubernetes.yml']) {
      const { status, said } = promtool(folder, 'check', 'config', file);
      assert.equal(status, 0, said);
    }
    const { status, said } = promtool(
      folder,
      'check',
      'rules',
      '--lint=all',
      '--lint-fatal',
      'sluice.rules.yml',
    );
    assert.equal(status, 0, said);
  });

  test('the tests of the rules, which pass and fire every alert', () => {
    const { status, said } = promtool(folder, 'test', 'rules', 'sluice.rules.test.yml');
    assert.equal(status, 0, said);
    const text = readDeployFile('prometheus', 'sluice.rules.test.yml');
    for (const { alert } of alerts) assert.match(text, new RegExp(`${alert}\\b`), `${alert} has a test`);
  });

  test('every expression of the dashboard', () => {
    const { status, said } = checkExpressions(sent);
    assert.equal(status, 0, said);
    assert.notEqual(checkExpressions(['sum by (shard sluice_backlog_bytes)']).status, 0);
  });
});

describe('rules and dashboard name', () => {
  const { tests } = readYaml<{ tests: { input_series: { series: string }[] }[] }>(
    'prometheus',
    'sluice.rules.test.yml',
  );
  const series = tests.flatMap(({ input_series }) => input_series.map((each) => each.series));
  const expressions = [...rules.map(({ expr }) => expr), ...sent, ...series];
  const recorded = new Set(rules.map(({ record }) => record));
  const selectors = expressions.flatMap(selectorsOf);

  test('metrics that a started deployment has', () => {
    assert.ok(declared.size >= 20);
    const unknown = selectors
      .map(({ metric }) => metric)
      .filter((metric) => !recorded.has(metric) && !declared.has(declaredName(metric, declared)));
    assert.deepEqual(unknown, []);
  });

  test('labels that these metrics have', () => {
    for (const expression of expressions) {
      const known = new Set(
        selectorsOf(expression).flatMap(({ metric }) => labelsOf(declaredName(metric, declared))),
      );
      const used = [
        ...selectorsOf(expression).flatMap(({ matchers }) => matchers.map(({ label }) => label)),
        ...groupingLabelsOf(expression),
      ];
      for (const label of used) assert.ok(known.has(label), `${label} in ${expression}`);
    }
  });

  test('values of labels that the service gives', () => {
    const sources = ['src', 'workers']
      .flatMap((folder) =>
        readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) =>
          join(root, folder, name),
        ),
      )
      .filter((path) => path.endsWith('.ts'))
      .map((path) => readFileSync(path, 'utf8'))
      .join('\n');
    const asked = [...rules.map(({ expr }) => expr), ...sent].flatMap(selectorsOf);
    const matchers = asked.flatMap((selector) => selector.matchers);
    const of = (name: string) =>
      matchers.filter(({ label }) => label === name).flatMap(({ values }) => values);
    const statuses = new Set(Object.values(outcomes).map(({ status }) => String(status)));
    for (const status of of('status')) assert.ok(statuses.has(status), status);
    const paths = [...sources.matchAll(/'(\/[\w/:]+)'/g)].map(([, path]) => String(path));
    for (const form of of('endpoint'))
      assert.ok(
        paths.some((path) => new RegExp(`^${form}$`).test(path)),
        form,
      );
    const values = matchers
      .filter(({ label }) => !['status', 'endpoint'].includes(label))
      .flatMap((matcher) => matcher.values);
    assert.ok(values.includes('targets_lost'));
    for (const value of values) assert.ok(sources.includes(`'${value}'`), value);
  });

  test('metrics that are all on the dashboard', () => {
    const drawn = new Set(shown.flatMap(selectorsOf).map(({ metric }) => declaredName(metric, declared)));
    assert.deepEqual(
      [...declared].filter((name) => !drawn.has(name)),
      [],
    );
  });

  /** The labels that a metric declares, the ones that scraping adds, and a histogram's own. */
  function labelsOf(metric: string): string[] {
    const record = rules.find((rule) => rule.record === metric);
    if (record !== undefined) return groupingLabelsOf(record.expr);
    const own = [processRegistry, deploymentRegistry].flatMap((each: Registry) =>
      each.getMetricsAsArray().filter(({ name }) => name === metric),
    );
    const names = own.flatMap((found) => (found as unknown as { labelNames: string[] }).labelNames);
    return [...names, 'le', 'instance', 'job'];
  }
});

describe('alerts', () => {
  test('say how urgent they are and what to do', () => {
    for (const { alert, labels, annotations } of alerts) {
      assert.match(labels?.severity ?? '', /^(critical|warning|info)$/, alert);
      assert.ok((annotations?.summary.length ?? 0) > 20, alert);
      assert.equal(annotations?.runbook, `RUNBOOK.md#${alert?.toLowerCase()}`);
    }
  });

  test('and the sections of the runbook match one to one', () => {
    const sections = [...readDeployFile('RUNBOOK.md').matchAll(/^### (Sluice\w+)$/gm)].map(
      ([, name]) => name,
    );
    assert.deepEqual(sections.sort(), alerts.map(({ alert }) => alert).sort());
  });
});

describe('the dashboard', () => {
  test('has panels with unique numbers that do not overlap', () => {
    const ids = dashboard.panels.map(({ id }) => id);
    assert.equal(new Set(ids).size, ids.length);
    const taken = new Set<string>();
    for (const { title, gridPos } of dashboard.panels) {
      assert.ok(gridPos.x + gridPos.w <= 24, title);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          assert.ok(!taken.has(`${x} ${y}`), title);
          taken.add(`${x} ${y}`);
        }
      }
    }
  });

  test('is provisioned from where compose.yaml puts it, with a data source of its kind', () => {
    const { providers } = readYaml<{ providers: { options: { path: string } }[] }>(
      'grafana/provisioning/dashboards/sluice.yaml',
    );
    assert.ok(
      readDeployFile('compose.yaml').includes(`./grafana/dashboard.json:${providers[0]?.options.path}/`),
    );
    const { datasources } = readYaml<{ datasources: { type: string }[] }>(
      'grafana/provisioning/datasources/prometheus.yaml',
    );
    assert.equal(datasources[0]?.type, 'prometheus');
  });
});

test('concurrent requests for metrics share one sum, and a later request gets a new one', async (context) => {
  const askersCount = 20;
  const log = createLog('test', 'silent');
  let asked = 0;
  let readings = 0;
  const { opened: allAsked, open: release } = gate();
  const read = async () => {
    readings += 1;
    await allAsked;
    if (readings === 2) throw new Error('Redis is away');
    return `sluice_readings ${readings}\n`;
  };
  const noted = (route: Route): Route => ({
    ...route,
    handle: (exchange, req) => {
      const answered = route.handle(exchange, req);
      asked += 1;
      if (asked === askersCount) release();
      return answered;
    },
  });
  const port = await freePort();
  const server = await listen('127.0.0.1', port, 'PORT', false, adminRoutes(read, log).map(noted), log);
  const ask = async () => {
    const reply = await fetch(`http://127.0.0.1:${port}/metrics`);
    return [reply.status, await reply.text()];
  };
  context.after(() => server.close());
  const together = await Promise.all(Array.from({ length: askersCount }, ask));
  assert.deepEqual(new Set(together.map(String)), new Set(['200,sluice_readings 1\n']));
  assert.deepEqual(await ask(), [503, '{}']);
  assert.deepEqual(await ask(), [200, 'sluice_readings 3\n']);
});
