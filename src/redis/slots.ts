// Which server of a cluster has a key.

import type { Cluster, Redis } from '../packages/ioredis.js';

const slotCount = 16_384;

/** The part of a key that decides its server: keys with the same tag are on one server. */
export function tagOf(key: string): string {
  return /^\{[^}]+\}/.exec(key)?.[0] ?? key;
}

/** What the library knows of the cluster. */
type Known = {
  readonly slots: readonly (readonly string[])[];
  readonly connectionPool: { getInstanceByKey(address: string): Redis | undefined };
};

/** The connection to the master that has a key, as far as is known. */
export function masterOf(redis: Cluster, key: string): Redis | undefined {
  const { slots, connectionPool } = redis as unknown as Known;
  const [address] = slots[slotOf(tagOf(key))] ?? [];
  return address === undefined ? undefined : connectionPool.getInstanceByKey(address);
}

const known = new Map<string, number>();

/** The slot of the keys with this tag, from 0 to 16,383. */
export function slotOf(tag: string): number {
  const found = known.get(tag) ?? crc16(Buffer.from(tag.replace(/^\{|\}$/g, ''))) % slotCount;
  known.set(tag, found);
  return found;
}

/** The CRC16 by which Redis Cluster assigns keys to slots. */
function crc16(bytes: Buffer): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc;
}
