// Resolves a callback's host name. Accounts choose the name, and with it a DNS server that may never answer. The resolver of `dns` (c-ares)
// waits for it without a thread and can be cancelled. `dns.lookup` would occupy one of the process's few threads, which are also needed to
// resolve ClickHouse's name. So `dns.lookup` is used only for names in CALLBACK_ALLOW, which the operator chooses, and for one name at a
// time.

import { lookup, Resolver } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';

/** All addresses of a name. Settles after `msMax` at the latest unless CALLBACK_ALLOW has the name. Rejects if there are none. */
export type Resolve = (host: string, msMax: number) => Promise<readonly string[]>;

/** Where names are looked up; by default in the system's sources. */
export type NameSources = { readonly hostsFile?: string; readonly servers?: readonly string[] };

/** How often and how long each DNS server is asked; the second try waits twice as long. */
const asking = { timeout: 1_500, tries: 2 };

/**
 * /etc/hosts comes first. Then names in CALLBACK_ALLOW (`allowed`) are looked up as programs on this machine do, so that the
 * search domains of Kubernetes and names outside of DNS work. All other names are asked for as they are, in DNS alone.
 */
export function createResolve(allowed: readonly string[], sources: NameSources = {}): Resolve {
  const ofOperator = new Set(allowed.map((entry) => entry.toLowerCase()));
  return async (host, msMax) => {
    const known = await readHosts(sources.hostsFile ?? '/etc/hosts', host);
    if (known.length > 0) return known;
    return ofOperator.has(host.toLowerCase()) ? lookUp(host) : askDns(host, msMax, sources.servers);
  };
}

/** IPv4 and IPv6 addresses alternately, so that a few tries reach both. If the query for one family fails, the other suffices. */
async function askDns(host: string, msMax: number, servers: NameSources['servers']): Promise<string[]> {
  const resolver = new Resolver(asking);
  if (servers !== undefined) resolver.setServers(servers);
  const timer = setTimeout(() => resolver.cancel(), msMax);
  const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
  clearTimeout(timer);
  const [first = [], second = []] = answers.map((each) => (each.status === 'fulfilled' ? each.value : []));
  const longer = first.length > second.length ? first : second;
  const addresses = longer.flatMap((_, at) => [first[at], second[at]]).filter((each) => each !== undefined);
  if (addresses.length === 0) throw new Error('DNS has no address of the name');
  return addresses;
}

/** Running and waiting look-ups by name. They share the process's threads, so this is global. */
const lookUps = new Map<string, Promise<readonly string[]>>();
let lastLookUp: Promise<unknown> = Promise.resolve();

function lookUp(host: string): Promise<readonly string[]> {
  const running = lookUps.get(host);
  if (running !== undefined) return running;
  const addresses = lastLookUp
    .then(() => lookup(host, { all: true }))
    .then((found) => found.map(({ address }) => address))
    .finally(() => lookUps.delete(host));
  lookUps.set(host, addresses);
  // The next look-up starts even if this one fails.
  lastLookUp = addresses.catch(() => undefined);
  return addresses;
}

/** @see https://man7.org/linux/man-pages/man5/hosts.5.html */
async function readHosts(file: string, host: string): Promise<string[]> {
  const text = await readFile(file, 'utf8').catch(noHosts);
  return text.split('\n').flatMap((line) => {
    const [address = '', ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
    return names.some((name) => name.toLowerCase() === host.toLowerCase()) ? [address] : [];
  });
}

/** A machine may have no such file. */
function noHosts(error: NodeJS.ErrnoException): string {
  if (error.code !== 'ENOENT') throw error;
  return '';
}
