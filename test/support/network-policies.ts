// Evaluates Kubernetes's network policies: which connections they let out of a pod, and which into one.

import { BlockList, isIPv6 } from 'node:net';
import { type Labels, type Manifest, selects } from './kubernetes.js';

type Selector = { readonly matchLabels?: Labels };
type Peer = {
  readonly podSelector?: Selector;
  readonly namespaceSelector?: Selector;
  readonly ipBlock?: { readonly cidr: string; readonly except?: readonly string[] };
};
type Rule = {
  readonly from?: readonly Peer[];
  readonly to?: readonly Peer[];
  readonly ports?: readonly { readonly port: number | string; readonly protocol: string }[];
};
export type Policy = Manifest & {
  readonly spec: {
    readonly podSelector: Selector;
    readonly policyTypes: readonly string[];
    readonly ingress?: readonly Rule[];
    readonly egress?: readonly Rule[];
  };
};

/** One end of a connection: a pod of the policies' namespace or of another one, or an address outside of the cluster. */
export type End = { readonly pod: Labels; readonly namespace?: Labels } | { readonly address: string };

/** Whether the policies let a pod of their namespace connect to the other end, or (`Ingress`) accept a connection from it. */
export function lets(
  policies: readonly Policy[],
  direction: 'Ingress' | 'Egress',
  pod: Labels,
  other: End,
  port: number | string,
  protocol = 'TCP',
): boolean {
  const selecting = policies.filter(
    ({ spec }) => spec.policyTypes.includes(direction) && isOf(spec.podSelector, pod),
  );
  if (selecting.length === 0) return true;
  return selecting
    .flatMap(({ spec }) => (direction === 'Ingress' ? spec.ingress : spec.egress) ?? [])
    .some(({ from, to, ports }) => {
      const peers = direction === 'Ingress' ? from : to;
      const isOpen =
        ports === undefined || ports.some((each) => each.port === port && each.protocol === protocol);
      return isOpen && (peers === undefined || peers.some((peer) => isPeer(peer, other)));
    });
}

function isPeer({ podSelector, namespaceSelector, ipBlock }: Peer, end: End): boolean {
  if ('address' in end) {
    if (ipBlock === undefined) return false;
    return isIn(ipBlock.cidr, end.address) && !(ipBlock.except ?? []).some((cidr) => isIn(cidr, end.address));
  }
  if (ipBlock !== undefined) return false;
  const isNamespace =
    namespaceSelector === undefined
      ? end.namespace === undefined
      : end.namespace !== undefined && isOf(namespaceSelector, end.namespace);
  return isNamespace && (podSelector === undefined || isOf(podSelector, end.pod));
}

function isOf({ matchLabels }: Selector, labels: Labels): boolean {
  return matchLabels === undefined || selects(matchLabels, labels);
}

function isIn(cidr: string, address: string): boolean {
  const [net = '', bits] = cidr.split('/');
  const list = new BlockList();
  list.addSubnet(net, Number(bits), familyOf(net));
  return familyOf(net) === familyOf(address) && list.check(address, familyOf(address));
}

function familyOf(address: string): 'ipv4' | 'ipv6' {
  return isIPv6(address) ? 'ipv6' : 'ipv4';
}
