// A DNS server for tests: it answers for some names and ignores all others.

import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type AddressInfo, isIP } from 'node:net';

export type DnsServer = {
  /** The address in the form of `Resolver.setServers`. */
  readonly address: string;
  /** How many questions arrived. */
  readonly asked: () => number;
  readonly stop: () => void;
};

const typeIPv4 = 1;
const typeIPv6 = 28;

/** `known` has the addresses of each name; a question for a family of which the name has none is answered with an empty list. */
export async function startDnsServer(known: Readonly<Record<string, readonly string[]>>): Promise<DnsServer> {
  const socket = createSocket('udp4');
  let count = 0;
  socket.on('message', (question, from) => {
    count += 1;
    const { name, type, end } = readQuestion(question);
    const addresses = known[name];
    if (addresses === undefined) return;
    const ofType = addresses.filter((address) => (isIP(address) === 4 ? typeIPv4 : typeIPv6) === type);
    // The id (copied below), then the flags of an answer, one question, and the number of records.
    const header = Buffer.from([0, 0, 0x81, 0x80, 0, 1, 0, ofType.length, 0, 0, 0, 0]);
    question.copy(header, 0, 0, 2);
    const records = ofType.map((address) => recordOf(type, bytesOf(address)));
    socket.send(Buffer.concat([header, question.subarray(12, end), ...records]), from.port, from.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  const { port } = socket.address() as AddressInfo;
  return { address: `127.0.0.1:${port}`, asked: () => count, stop: () => socket.close() };
}

function readQuestion(message: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = message[at] ?? 0; length > 0; length = message[at] ?? 0) {
    labels.push(message.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join('.').toLowerCase(), type: message.readUInt16BE(at + 1), end: at + 5 };
}

/** A record of class IN, valid for a minute; its name is a pointer to that of the question. */
function recordOf(type: number, bytes: readonly number[]): Buffer {
  return Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 60, 0, bytes.length, ...bytes]);
}

/** IPv6 addresses must be written in full. */
function bytesOf(address: string): number[] {
  if (isIP(address) === 4) return address.split('.').map(Number);
  return address.split(':').flatMap((part) => {
    const value = Number.parseInt(part, 16);
    return [value >> 8, value & 255];
  });
}
