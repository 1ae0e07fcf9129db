// Which address counts as the caller's: behind proxies that forward it or not, and with headers that a caller made up.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readConfig } from '../../src/config.js';
import { createCallerAddress, networkOf } from '../../src/http/protocol/caller-address.js';

type Sent = { readonly peer: string; readonly for?: string; readonly forwarded?: string };

const proxies = ['10.0.0.0/8', '192.0.2.1', '2001:db8:1::/48'];

function callerOf(
  { peer, for: forwardedFor, forwarded }: Sent,
  trusted: readonly string[] = proxies,
): string {
  const { buffer } = new Uint8Array(Buffer.from(peer));
  return createCallerAddress(trusted)(buffer, { forwardedFor, forwarded });
}

const client = '203.0.113.7';

describe('the address of a caller', () => {
  test('is that of the connection if no proxy is trusted, despite any headers', () => {
    const headers = { for: '1.1.1.1', forwarded: 'for=1.1.1.1' };
    assert.equal(callerOf({ peer: client, ...headers }, []), client);
    assert.equal(callerOf({ peer: '127.0.0.1', ...headers }, []), '127.0.0.1');
    assert.equal(callerOf({ peer: client, ...headers }), client, 'a connection that is no proxy');
  });

  test('is what the trusted proxies forward, read from the right', () => {
    const cases: readonly (readonly [Sent, string])[] = [
      [{ peer: '10.1.2.3', for: client }, client],
      [{ peer: '192.0.2.1', for: client }, client],
      [{ peer: '192.0.2.2', for: '1.1.1.1' }, '192.0.2.2'],
      [{ peer: '10.1.2.3', for: `1.1.1.1, ${client}` }, client],
      [{ peer: '10.1.2.3', for: `1.1.1.1,2.2.2.2 , ${client}, 10.9.9.9` }, client],
      [{ peer: '10.1.2.3', for: `10.0.0.5, ${client}` }, client],
      [{ peer: '10.1.2.3', for: '10.0.0.5, 10.0.0.6' }, '10.0.0.5'],
      [{ peer: '10.1.2.3', for: `${client}:4711` }, client],
      [{ peer: '10.1.2.3', for: '[2001:db8:ffff::7]:4711' }, '2001:db8:ffff::7'],
      [{ peer: '10.1.2.3', for: '2001:DB8:ffff:0:0:0:0:7' }, '2001:db8:ffff::7'],
      [{ peer: '2001:0db8:0001:0000:0000:0000:0000:0001', for: client }, client],
      [{ peer: '0000:0000:0000:0000:0000:ffff:0a01:0203', for: client }, client],
      [{ peer: '10.1.2.3', for: `::ffff:${client}` }, client],
      [{ peer: '10.1.2.3', forwarded: `for=${client}` }, client],
      [{ peer: '10.1.2.3', forwarded: `for=1.1.1.1, proto=https;For="${client}:80";by=10.1.2.3` }, client],
      [{ peer: '10.1.2.3', forwarded: 'for="[2001:db8:ffff::7]:4711"' }, '2001:db8:ffff::7'],
      [{ peer: '10.1.2.3', for: client, forwarded: `for=${client}` }, client],
    ];
    for (const [sent, expected] of cases) assert.equal(callerOf(sent), expected, JSON.stringify(sent));
  });

  test('is never one that the caller made up, nor one to the left of an entry that hides its address', () => {
    const proxy = '10.1.2.3';
    const cases: readonly (readonly [Sent, string])[] = [
      [{ peer: proxy, for: '1.1.1.1, unknown' }, proxy],
      [{ peer: proxy, for: '1.1.1.1,' }, proxy],
      [{ peer: proxy, for: '' }, proxy],
      [{ peer: proxy, for: '1.1.1.1 2.2.2.2' }, proxy],
      [{ peer: proxy, for: '1.1.1.999' }, proxy],
      [{ peer: proxy, for: 'fe80::1%eth0' }, proxy],
      [{ peer: proxy, for: '1.1.1.1, unknown, 10.9.9.9' }, '10.9.9.9'],
      [{ peer: proxy, forwarded: 'for=1.1.1.1, for=_hidden' }, proxy],
      [{ peer: proxy, forwarded: 'for=1.1.1.1, by=10.0.0.1' }, proxy],
      [{ peer: proxy, forwarded: 'for=1.1.1.1;by=x, proto=https;xfor=2.2.2.2' }, proxy],
      // A quote that the caller leaves open must not swallow what the proxy adds.
      [{ peer: proxy, forwarded: `for=1.1.1.1, for=", for=${client}` }, client],
      [{ peer: proxy, forwarded: 'for=1.1.1.1, for=", for="[2001:db8:ffff::7]:80"' }, '2001:db8:ffff::7'],
      // The proxy sets one header, and passes on the other.
      [{ peer: proxy, for: client, forwarded: 'for=1.1.1.1' }, proxy],
      [{ peer: proxy, for: '1.1.1.1', forwarded: `for=${client}` }, proxy],
    ];
    for (const [sent, expected] of cases) assert.equal(callerOf(sent), expected, JSON.stringify(sent));
  });

  test('counts as its /64 network in IPv6, since a caller with one of its addresses has them all', () => {
    assert.equal(networkOf(client), client);
    assert.equal(networkOf('2001:db8:1:2:3:4:5:6'), '2001:db8:1:2::/64');
    assert.equal(networkOf('2001:db8:1:2::6'), networkOf('2001:db8:1:2:3:4:5:6'));
    assert.notEqual(networkOf('2001:db8:1:3::6'), networkOf('2001:db8:1:2::6'));
    assert.equal(networkOf('2001:db8::'), '2001:db8:0:0::/64');
    assert.equal(networkOf('::1'), '0:0:0:0::/64');
  });

  test('is read in bounded time, however long the headers are', () => {
    for (const piece of ['1.1.1.1,', 'for="', 'for=";,', '"', 'for=1.1.1.1;', '\\"', '[', ';']) {
      const text = piece.repeat(Math.floor(16_000 / piece.length));
      const { user } = process.cpuUsage();
      callerOf({ peer: '10.0.0.1', for: text, forwarded: text });
      assert.ok(process.cpuUsage().user - user < 100_000, piece);
    }
  });
});

test('TRUSTED_PROXIES is a list of addresses and networks', () => {
  const read = (TRUSTED_PROXIES: string) => readConfig({ TRUSTED_PROXIES }).trustedProxies;
  assert.deepEqual(read(''), []);
  assert.deepEqual(read(' 10.0.0.0/8 , ::1,2001:db8::/32'), ['10.0.0.0/8', '::1', '2001:db8::/32']);
  for (const bad of [
    'x',
    '10.0.0.0/33',
    '::/129',
    '10.0.0.0/',
    '10.0.0.0/8/8',
    '10.0.0.0/-1',
    '1.1.1.1,',
    'fe80::1%lo',
  ]) {
    assert.throws(() => read(bad), /TRUSTED_PROXIES must be addresses or networks/, bad);
  }
});
