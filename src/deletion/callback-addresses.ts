// Which addresses a callback may connect to: public ones, and what CALLBACK_ALLOW names. A callback must not give the account
// access to what only this machine or its network can reach.

import { BlockList, isIP } from 'node:net';

/** @see https://www.iana.org/assignments/iana-ipv4-special-registry */
const specialIPv4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
];

/**
 * Special networks among the global unicast addresses of IPv6 (2000::/3): for protocols, tunnels and examples. They may lead to
 * any address of IPv4. Addresses outside of 2000::/3 are all special: loopback, mapped and translated IPv4, link-local, unique
 * local, multicast.
 * @see https://www.iana.org/assignments/iana-ipv6-special-registry
 */
const specialIPv6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'];

const special = blockListOf([...specialIPv4, ...specialIPv6]);
const globalUnicast = blockListOf(['2000::/3']);

/** Whether a callback to a host may connect to an address of it. */
export type AddressCheck = (host: string, address: string) => boolean;

/** `allowed`: addresses, networks and names of hosts, as `config.ts` has checked them. */
export function createAddressCheck(allowed: readonly string[]): AddressCheck {
  const isNetwork = (entry: string) => isIP(entry.split('/')[0] ?? '') !== 0;
  const networks = blockListOf(allowed.filter(isNetwork));
  const hosts = new Set(allowed.filter((entry) => !isNetwork(entry)).map((host) => host.toLowerCase()));
  return (host, address) => {
    const version = isIP(address);
    if (version === 0) return false;
    const family = version === 6 ? 'ipv6' : 'ipv4';
    if (hosts.has(host.toLowerCase()) || networks.check(address, family)) return true;
    if (version === 6 && !globalUnicast.check(address, family)) return false;
    return !special.check(address, family);
  };
}

function blockListOf(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', bits] = network.split('/');
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}
