// Debian's proxies with the files of deploy/proxy, in front of a test's API process.

import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { type Child, startChild } from '../harness/child.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { tempDir } from '../harness/temp-dir.js';
import { programPath, readDeployFile, root } from './deploy-file.js';

export type StartedProxy = Child & {
  readonly origin: string;
  /** A file with the certificate of the authority that signed the proxy's. */
  readonly authority: string;
  readonly adminOrigin?: string;
};
export type Upstream = { readonly apiPort: string; readonly adminPort: string };

/** Starts nginx with deploy/proxy/nginx.conf. */
export async function startNginx({ apiPort }: Upstream): Promise<StartedProxy> {
  const dir = tempDir('nginx');
  const port = await freePort();
  const site = replaced(readDeployFile('proxy', 'nginx.conf'), [
    ['server 127.0.0.1:8080;', `server 127.0.0.1:${apiPort};`],
    ['listen 443 ssl;', `listen 127.0.0.1:${port} ssl;`],
    ['/etc/ssl/sluice/fullchain.pem', join(dir, 'certificate.pem')],
    ['/etc/ssl/sluice/privkey.pem', join(dir, 'key.pem')],
  ]);
  makeCertificate(dir);
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${join(dir, name)};`,
  );
  writeFileSync(join(dir, 'site.conf'), site);
  writeFileSync(
    join(dir, 'nginx.conf'),
    `${process.getuid?.() === 0 ? 'user root;' : ''}
    worker_processes 1; daemon off; pid ${join(dir, 'pid')}; error_log stderr;
    events { worker_connections 256; }
    http { access_log off; ${paths.join(' ')} include ${join(dir, 'site.conf')}; }`,
  );
  const args = ['-p', dir, '-c', join(dir, 'nginx.conf')];
  return start('nginx', args, plainEnvironment(), port, { authority: join(dir, 'certificate.pem') });
}

/** Starts Caddy with deploy/proxy/Caddyfile; it makes certificates itself instead of fetching public ones. */
export async function startCaddy({ apiPort, adminPort }: Upstream): Promise<StartedProxy> {
  const dir = tempDir('caddy');
  const [port, ownAdminPort, redirectPort] = [await freePort(), await freePort(), await freePort()];
  const file = replaced(readDeployFile('proxy', 'Caddyfile'), [
    ['admin off', `admin off\n\tskip_install_trust\n\thttp_port ${redirectPort}`],
    ['dynamic a api 8080', `to 127.0.0.1:${apiPort}`],
    ['dynamic a api 8081', `to 127.0.0.1:${adminPort}`],
    ['http://:8081', `http://127.0.0.1:${ownAdminPort}`],
  ]);
  mkdirSync(join(dir, 'home'));
  writeFileSync(join(dir, 'Caddyfile'), file);
  const env = {
    ...plainEnvironment(),
    HOME: join(dir, 'home'),
    XDG_DATA_HOME: join(dir, 'home'),
    PUBLIC_BASE_URL: `https://localhost:${port}`,
  };
  const args = ['run', '--adapter', 'caddyfile', '--config', join(dir, 'Caddyfile')];
  const authority = join(dir, 'home/caddy/pki/authorities/local/root.crt');
  return start('caddy', args, env, port, { authority, adminOrigin: `http://127.0.0.1:${ownAdminPort}` });
}

/** What Caddy says about the unchanged file; empty if it finds nothing wrong. */
export function checkCaddyfile(): string {
  const { status, stdout, stderr } = spawnSync(
    programPath('caddy'),
    ['validate', '--adapter', 'caddyfile', '--config', join(root, 'deploy/proxy/Caddyfile')],
    {
      env: { ...plainEnvironment(), HOME: tempDir('caddy'), PUBLIC_BASE_URL: 'https://events.example.com' },
      encoding: 'utf8',
    },
  );
  return status === 0 ? '' : `${stdout}${stderr}`;
}

async function start(
  name: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  port: number,
  more: object,
): Promise<StartedProxy> {
  const child = await startChild({
    name,
    program: { command: programPath(name), args, env },
    healthy: () => accepts(port),
    healthyDeadlineMs: 30_000,
  });
  return Object.assign(child as StartedProxy, { origin: `https://localhost:${port}`, ...more });
}

function accepts(port: number): Promise<boolean> {
  return new Promise((settle) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      settle(true);
    }).once('error', () => settle(false));
  });
}

function replaced(text: string, replacements: readonly (readonly [string, string])[]): string {
  return replacements.reduce((before, [from, to]) => {
    if (!before.includes(from)) throw new Error(`the file does not hold ${from}`);
    return before.replaceAll(from, to);
  }, text);
}

/** Makes a key and a self-signed certificate. */
export function makeCertificate(dir: string): void {
  const { status, stderr } = spawnSync(
    'openssl',
    [
      ...'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost'.split(
        ' ',
      ),
      '-addext',
      'subjectAltName=DNS:localhost,IP:127.0.0.1',
      '-keyout',
      join(dir, 'key.pem'),
      '-out',
      join(dir, 'certificate.pem'),
    ],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(stderr);
}
