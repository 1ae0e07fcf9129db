// Which addresses a callback may connect to: public ones of other machines, and those in CALLBACK_ALLOW. A callback must not give an
// account access to what only this machine or its network can reach. Cloud services that give a machine its credentials and configuration
// are allowed only if CALLBACK_ALLOW has their exact address; networks and hosts in it do not include them.

import { BlockList, isIP } from 'node:net';
import { networkInterfaces } from 'node:os';

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

/**
 * Where clouds give their machines credentials and configuration. Azure's is a public address; others are in networks that CALLBACK_ALLOW
 * may contain for other reasons. All link-local addresses are included, since clouds keep adding services there.
 * @see https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html 169.254.169.254, fd00:ec2::254
 * @see https://docs.aws.amazon.com/eks/latest/userguide/pod-id-agent-setup.html 169.254.170.23, fd00:ec2::23
 * @see https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-iam-roles.html 169.254.170.2
 * @see https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
 * @see https://cloud.google.com/compute/docs/metadata/querying-metadata 169.254.169.254, fd20:ce::254
 * @see https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata 100.100.100.200
 * @see https://docs.oracle.com/en-us/iaas/Content/Compute/Tasks/gettingmetadata.htm 169.254.169.254, fd00:c1::a9fe:a9fe;
 *   192.0.0.192 is that of Oracle's older cloud
 * @see https://cloudinit.readthedocs.io/en/latest/reference/datasources/scaleway.html 169.254.42.42, fd00:42::42
 * @see https://techdocs.akamai.com/cloud-computing/docs/metadata-service-api 169.254.169.254, fd00:a9fe:a9fe::1
 * @see https://docs.openstack.org/nova/latest/user/metadata.html 169.254.169.254, fe80::a9fe:a9fe
 */
const platformAddresses = ['169.254.169.254', '168.63.129.16', '100.100.100.200', '192.0.0.192'];
const platformIPv4 = blockListOf(['169.254.0.0/16', ...platformAddresses]);
const platformIPv6 = blockListOf([
  'fe80::/10',
  'fd00:ec2::/32',
  'fd20:ce::254',
  'fd00:c1::a9fe:a9fe',
  'fd00:42::42',
  'fd00:a9fe:a9fe::1',
]);

/**
 * Networks that translate to IPv4 in known positions: mapped and compatible addresses, NAT64, 6to4. In any other network, an IPv4 address
 * may stand only in the last four bytes.
 */
const translated = blockListOf(['::ffff:0:0/96', '::/96', '64:ff9b::/96', '64:ff9b:1::/48', '2002::/16']);

const special = blockListOf([...specialIPv4, ...specialIPv6]);
const globalUnicast = blockListOf(['2000::/3']);

/** Whether a callback to a host may connect to one of its addresses. */
export type AddressCheck = (host: string, address: string) => boolean;

/**
 * `allowed`: addresses, networks and host names, as `config.ts` has checked them. `readOwn`: the current addresses of this machine. They
 * are refused even if public, since services answer the machine itself where its firewall blocks others.
 */
export function createAddressCheck(
  allowed: readonly string[],
  readOwn: () => readonly string[] = ownAddresses,
): AddressCheck {
  const isNetwork = (entry: string) => isIP(entry.split('/')[0] ?? '') !== 0;
  const networks = blockListOf(allowed.filter(isNetwork));
  const named = blockListOf(allowed.filter(isOneAddress));
  const hosts = new Set(allowed.filter((entry) => !isNetwork(entry)).map((host) => host.toLowerCase()));
  return (host, address) => {
    const version = isIP(address);
    if (version === 0) return false;
    const family = version === 6 ? 'ipv6' : 'ipv4';
    if (isOfPlatform(address)) return named.check(address, family);
    if (hosts.has(host.toLowerCase()) || networks.check(address, family)) return true;
    if (version === 6 && !globalUnicast.check(address, family)) return false;
    return !special.check(address, family) && !blockListOf(readOwn()).check(address, family);
  };
}

function ownAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address));
}

/** Whether an entry of CALLBACK_ALLOW is a single address, with or without a prefix length. */
function isOneAddress(entry: string): boolean {
  const [address = '', bits] = entry.split('/');
  const version = isIP(address);
  return version !== 0 && (bits === undefined || Number(bits) === (version === 6 ? 128 : 32));
}

function isOfPlatform(address: string): boolean {
  if (isIP(address) === 4) return platformIPv4.check(address, 'ipv4');
  if (platformIPv6.check(address, 'ipv6')) return true;
  const embedded = embeddedIPv4(address);
  return translated.check(address, 'ipv6')
    ? embedded.some((each) => platformIPv4.check(each, 'ipv4'))
    : embedded.slice(0, 1).some((each) => platformAddresses.includes(each));
}

/**
 * The IPv4 addresses that an IPv6 address may contain: first in the last four bytes, as in most translations, then in the other positions
 * of NAT64 (RFC 6052, which skips byte 8) and of 6to4.
 */
function embeddedIPv4(address: string): string[] {
  const { hostname } = new URL(`http://[${address.split('%')[0]}]`);
  const [head = '', tail] = hostname.slice(1, -1).split('::');
  const wordsOf = (text: string) =>
    text === '' ? [] : text.split(':').map((word) => Number.parseInt(word, 16));
  const [first, last] = [wordsOf(head), wordsOf(tail ?? '')];
  const words = [...first, ...Array<number>(8 - first.length - last.length).fill(0), ...last];
  const bytes = words.flatMap((word) => [word >> 8, word & 255]);
  const places = [
    [12, 13, 14, 15],
    [2, 3, 4, 5],
    [4, 5, 6, 7],
    [5, 6, 7, 9],
    [6, 7, 9, 10],
    [7, 9, 10, 11],
    [9, 10, 11, 12],
  ];
  return places.map((place) => place.map((at) => bytes[at]).join('.'));
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
