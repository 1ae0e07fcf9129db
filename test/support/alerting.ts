// Debian's Prometheus and Alertmanager with the files of deploy/prometheus, but with shorter waits and a test's targets.

import { readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type Child, startChild } from '../harness/child.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { tempDir } from '../harness/temp-dir.js';
import { programPath, readDeployFile, readYaml } from './deploy-file.js';

type PrometheusConfig = {
  readonly scrape_configs: readonly { readonly job_name: string; readonly dns_sd_configs: unknown }[];
};
type AlertmanagerConfig = { readonly receivers: readonly { readonly name: string }[] };

export type Watched = {
  /** The addresses whose metrics are scraped, by job. */
  readonly targets: Readonly<Record<string, readonly string[]>>;
  /** The URLs to which alerts are posted, by receiver. */
  readonly receivers: Readonly<Record<string, string>>;
};

export type Alerting = {
  /** Evaluates an expression; settles with its label sets and values. */
  query(expression: string): Promise<{ metric: Record<string, string>; value: number }[]>;
  stop(): Promise<void>;
};

/** Starts both; settles when both are ready. */
export async function startAlerting({ targets, receivers }: Watched): Promise<Alerting> {
  const dir = tempDir('alerting');
  const [port, managerPort] = [await freePort(), await freePort()];
  const at = (name: string) => join(dir, name);
  const config = readYaml<PrometheusConfig>('prometheus', 'prometheus.yml');
  // JSON is YAML.
  writeFileSync(
    at('prometheus.yml'),
    JSON.stringify({
      ...config,
      global: { scrape_interval: '500ms', scrape_timeout: '500ms', evaluation_interval: '500ms' },
      alerting: { alertmanagers: [{ static_configs: [{ targets: [`127.0.0.1:${managerPort}`] }] }] },
      scrape_configs: config.scrape_configs.map(({ dns_sd_configs: _, ...job }) => ({
        ...job,
        static_configs: [{ targets: targets[job.job_name] ?? [] }],
      })),
    }),
  );
  const rules = readDeployFile('prometheus', 'sluice.rules.yml').replaceAll(/^( +for:) \w+$/gm, '$1 0s');
  writeFileSync(at('sluice.rules.yml'), rules);
  const manager = readYaml<AlertmanagerConfig>('prometheus', 'alertmanager.yml');
  const text = JSON.stringify({
    ...manager,
    receivers: manager.receivers.map((receiver) => ({
      ...receiver,
      webhook_configs: receivers[receiver.name] === undefined ? [] : [{ url: receivers[receiver.name] }],
    })),
  });
  writeFileSync(at('alertmanager.yml'), text.replaceAll(/"group_(wait|interval)":"\w+"/g, '"group_$1":"1s"'));
  const [alertmanager, prometheus] = await Promise.all([
    start(alertmanagerIn(dir), managerPort, [
      `--config.file=${at('alertmanager.yml')}`,
      `--storage.path=${at('alerts')}`,
      '--cluster.listen-address=',
    ]),
    start(programPath('prometheus'), port, [
      `--config.file=${at('prometheus.yml')}`,
      `--storage.tsdb.path=${at('series')}`,
    ]),
  ]);
  return {
    async query(expression) {
      const reply = await fetch(
        `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(expression)}`,
      );
      const { data } = (await reply.json()) as {
        data: { result: { metric: Record<string, string>; value: [number, string] }[] };
      };
      return data.result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }));
    },
    async stop() {
      await Promise.all([prometheus.stop(), alertmanager.stop()]);
    },
  };
}

function start(command: string, port: number, args: readonly string[]): Promise<Child> {
  return startChild({
    name: basename(command),
    program: {
      command,
      args: [...args, `--web.listen-address=127.0.0.1:${port}`],
      env: plainEnvironment(),
      cwd: dirname(String(args[0]).replace(/^--config\.file=/, '')),
    },
    healthy: async () => (await fetch(`http://127.0.0.1:${port}/-/ready`)).ok,
    healthyDeadlineMs: 30_000,
  });
}

/**
 * Makes a copy of Alertmanager for a folder. Debian's program reads templates from a fixed path, but here its package is only unpacked.
 * So the copy has another path of the same length, which leads to its working directory.
 */
function alertmanagerIn(dir: string): string {
  const bytes = readFileSync(programPath('prometheus-alertmanager'));
  const installed = '/usr/share/prometheus/alertmanager';
  const here = `.${'/'.repeat(installed.length - 1)}`;
  for (let at = bytes.indexOf(installed); at !== -1; at = bytes.indexOf(installed, at)) bytes.write(here, at);
  const copy = join(dir, 'prometheus-alertmanager');
  for (const name of ['default.tmpl', 'email.tmpl']) writeFileSync(join(dir, name), '');
  writeFileSync(copy, bytes, { mode: 0o755 });
  return copy;
}
