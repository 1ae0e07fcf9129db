// Pairing a phone with the Event Visualizer, as the device sees it.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { TransportAnswer } from '../../src/libraries/client/core/adapters.js';
import { createIosSluice } from '../../src/libraries/client/ios.js';
import { failure } from '../support/client-world.js';
import {
  openIos as configureIos,
  createPhone,
  opened,
  type Phone,
  settle,
  startAndroid,
  startIos,
} from '../support/phone.js';

const intervalMs = 15_000;

async function openIos() {
  const started = startIos();
  await settle();
  return started;
}

async function openAndroid() {
  const started = startAndroid();
  await settle();
  return started;
}

async function pairIos() {
  const opened = await openIos();
  opened.sluice.startEVPairing();
  await settle();
  return opened;
}

/** The pairing of each batch that arrived. */
function pairingsOf(phone: Phone): (string | undefined)[] {
  return phone.server.received.map(({ request }) => request.pairing);
}

/** Answers every batch as the server does when it does not know the pairing. */
function answerEnded(phone: Phone): void {
  phone.server.answerWith = ({ request }) => {
    const { body, ...answer } = phone.server.accept(request);
    return { ...answer, body: JSON.stringify({ ...JSON.parse(body), pairing: 'ended' }) };
  };
}

for (const open of [openIos, openAndroid]) {
  const platform = open === openIos ? 'iOS' : 'Android';

  test(`${platform} shows the code and sends every second with the secret, until it stops pairing`, async () => {
    const { phone, run, sluice } = await open();
    sluice.startEVPairing();
    await settle();
    assert.deepEqual(phone.pairings.asked, [{ app_id: '1' }]);
    assert.deepEqual(run.codes, ['COD-1']);
    sluice.track('a');
    await phone.clock.advance(1_000);
    sluice.track('b');
    await phone.clock.advance(1_000);
    assert.deepEqual(phone.server.events(), ['a', 'b']);
    sluice.stopEVPairing();
    await settle();
    assert.deepEqual(run.codes, ['COD-1', '']);
    assert.deepEqual(phone.pairings.stopped, [{ app_id: '1', pairing: 'secret-1' }]);
    sluice.track('c');
    await phone.clock.advance(1_000);
    assert.deepEqual(phone.server.events(), ['a', 'b'], 'the usual interval again');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(pairingsOf(phone), ['secret-1', 'secret-1', undefined]);
    assert.deepEqual(run.warnings, []);
  });

  test(`${platform} starts pairing at a shake`, async () => {
    const { phone, run } = await open();
    run.shake();
    await settle();
    assert.deepEqual([phone.pairings.asked.length, run.codes], [1, ['COD-1']]);
  });

  test(`${platform} does not listen to shakes once the gesture is disabled`, async () => {
    const { phone, run, sluice } = await open();
    assert.equal(run.shakeListenerCount(), 1);
    sluice.disableVisualizerPairingGesture();
    assert.equal(run.shakeListenerCount(), 0);
    run.shake();
    await settle();
    assert.equal(phone.pairings.asked.length, 0);
    sluice.startEVPairing();
    await settle();
    assert.equal(phone.pairings.asked.length, 1, 'the operation still pairs');
  });
}

describe('the gesture', () => {
  test('can be disabled before the phone is known', async () => {
    const phone = createPhone();
    const run = phone.open();
    const sluice = createIosSluice();
    sluice.disableVisualizerPairingGesture();
    sluice.configure(run.adapters);
    sluice.setAppId('1');
    run.shake();
    await settle();
    assert.deepEqual([run.shakeListenerCount(), phone.pairings.asked.length], [0, 0]);
  });

  test('is off even if a listener cannot be removed, or is removed by calling a function', async () => {
    const phone = createPhone();
    let shake = () => {};
    let removed = 0;
    for (const result of [undefined, 5, () => removed++]) {
      const run = phone.open({
        onShake: (listener) => {
          shake = listener;
          return result;
        },
      });
      const sluice = createIosSluice();
      sluice.configure(run.adapters);
      sluice.setAppId('1');
      sluice.disableVisualizerPairingGesture();
      shake();
      await settle();
      assert.deepEqual(run.warnings, []);
    }
    assert.deepEqual([phone.pairings.asked.length, removed], [0, 1]);
  });

  test('can be disabled by its deprecated name, which warns once what to call instead', async () => {
    const { phone, run, sluice } = await openAndroid();
    sluice.disableDefaultPairingGesture();
    sluice.disableDefaultPairingGesture();
    run.shake();
    await settle();
    assert.equal(phone.pairings.asked.length, 0);
    assert.deepEqual(run.warnings, [
      'Sluice: disableDefaultPairingGesture is deprecated: use disableVisualizerPairingGesture.',
    ]);
  });
});

describe('a pairing', () => {
  test('ends on the device when the server says so', async () => {
    const { phone, run, sluice } = await pairIos();
    answerEnded(phone);
    sluice.track('a');
    await phone.clock.advance(1_000);
    assert.deepEqual(run.codes, ['COD-1', '']);
    sluice.track('b');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(pairingsOf(phone), ['secret-1', undefined]);
    sluice.stopEVPairing();
    await settle();
    assert.deepEqual(phone.pairings.stopped, [], 'the server already knows');
  });

  test('ends when the server says so in answer to the batch that the app sent on its way to the background', async () => {
    const { phone, run, sluice } = await pairIos();
    answerEnded(phone);
    sluice.track('a');
    run.leaveFront();
    await settle();
    assert.deepEqual([pairingsOf(phone), run.codes], [['secret-1'], ['COD-1', '']]);
  });

  test('sends what waits at once', async () => {
    const { phone, sluice } = await openIos();
    sluice.track('before');
    sluice.startEVPairing();
    await settle();
    assert.deepEqual([phone.server.events(), pairingsOf(phone)], [['before'], ['secret-1']]);
  });

  test('shows its code again and goes on, as long as the server knows it', async () => {
    const { phone, run, sluice } = await openIos();
    phone.pairings.answer = () => opened('s', 'AAA-BBB', 60);
    sluice.startEVPairing();
    sluice.startEVPairing();
    await settle();
    assert.deepEqual([phone.pairings.asked, run.codes], [[{ app_id: '1' }], ['AAA-BBB']]);
    await phone.clock.advance(40_000);
    run.shake();
    await settle();
    assert.deepEqual(phone.pairings.asked.slice(1), [{ app_id: '1', pairing: 's' }]);
    assert.deepEqual(run.codes, ['AAA-BBB', 'AAA-BBB']);
    await phone.clock.advance(59_999);
    assert.equal(run.codes.length, 2, 'the code is valid for as long as the server said last');
    await phone.clock.advance(1);
    assert.deepEqual(run.codes.slice(2), ['']);
    run.shake();
    await settle();
    assert.deepEqual(run.codes.slice(3), ['AAA-BBB']);
    sluice.track('a');
    await phone.clock.advance(1_000);
    assert.deepEqual([pairingsOf(phone), phone.pairings.stopped], [['s'], []]);
  });

  test('that has ended without the device knowing is followed by another at the next shake', async () => {
    const { phone, run, sluice } = await pairIos();
    run.shake();
    await settle();
    assert.deepEqual(run.codes, ['COD-1', 'COD-1', 'COD-2']);
    sluice.track('a');
    await phone.clock.advance(1_000);
    assert.deepEqual(pairingsOf(phone), ['secret-2']);
    await phone.clock.advance(10 * 60_000 - 1_001);
    assert.equal(run.codes.length, 3);
    await phone.clock.advance(1);
    assert.deepEqual(run.codes.slice(3), [''], 'the timer of the first one has ended with it');
  });

  test('keeps its code if the server does not answer when asked again', async () => {
    const { phone, run, sluice } = await pairIos();
    phone.pairings.answer = () => failure(503);
    run.shake();
    await settle();
    assert.deepEqual(run.codes, ['COD-1', 'COD-1']);
    assert.match(run.warnings.join(), /pairing with the Event Visualizer failed.*503/);
    sluice.track('a');
    await phone.clock.advance(1_000);
    assert.deepEqual(pairingsOf(phone), ['secret-1']);
  });

  test('is not given up because the device learns of an earlier end while it asks again', async () => {
    const { phone, run, sluice } = await pairIos();
    let answer = (_: TransportAnswer) => {};
    phone.pairings.answer = () =>
      new Promise((resolve) => {
        answer = resolve;
      });
    answerEnded(phone);
    run.shake();
    sluice.track('a');
    await phone.clock.advance(1_000);
    assert.deepEqual(pairingsOf(phone), ['secret-1']);
    answer(opened('next', 'CCC-DDD'));
    await settle();
    assert.deepEqual(run.codes, ['COD-1', 'COD-1', 'CCC-DDD']);
    phone.server.answerWith = () => undefined;
    sluice.track('b');
    await phone.clock.advance(1_000);
    assert.deepEqual([pairingsOf(phone), phone.pairings.stopped], [['secret-1', 'next'], []]);
  });

  test('that is stopped while it is requested again stays stopped, and so does one that begins in its place', async () => {
    const { phone, run, sluice } = await pairIos();
    run.shake();
    sluice.stopEVPairing();
    await settle();
    assert.deepEqual(run.codes, ['COD-1', 'COD-1', '']);
    assert.deepEqual(phone.pairings.stopped, [
      { app_id: '1', pairing: 'secret-1' },
      { app_id: '1', pairing: 'secret-2' },
    ]);
    sluice.track('a');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(pairingsOf(phone), [undefined]);
  });

  test('ends when another app is set, and stays when the same one is', async () => {
    const { phone, sluice } = await pairIos();
    sluice.setAppId('1');
    sluice.track('of 1');
    await phone.clock.advance(1_000);
    assert.deepEqual([pairingsOf(phone), phone.pairings.stopped], [['secret-1'], []]);
    sluice.setAppId('2');
    sluice.track('of 2');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(phone.pairings.stopped, [{ app_id: '1', pairing: 'secret-1' }]);
    assert.deepEqual(pairingsOf(phone), ['secret-1', undefined]);
  });

  test('that is stopped before the answer came is stopped at the server, and never shown', async () => {
    const { phone, run, sluice } = await openIos();
    let answer = (_: TransportAnswer) => {};
    phone.pairings.answer = () =>
      new Promise((resolve) => {
        answer = resolve;
      });
    sluice.startEVPairing();
    await settle();
    sluice.stopEVPairing();
    answer(opened('late', 'AAA-BBB'));
    await settle();
    assert.deepEqual(run.codes, []);
    assert.deepEqual(phone.pairings.stopped, [{ app_id: '1', pairing: 'late' }]);
    sluice.track('a');
    await phone.clock.advance(intervalMs);
    assert.deepEqual(pairingsOf(phone), [undefined]);
  });

  test('is not affected by the fate of an earlier one', async () => {
    const { phone, run, sluice } = await openIos();
    const answers: ((answer: TransportAnswer) => void)[] = [];
    phone.pairings.answer = () => new Promise((resolve) => answers.push(resolve));
    sluice.startEVPairing();
    sluice.stopEVPairing();
    sluice.startEVPairing();
    await settle();
    answers[1]?.(opened('second', 'CCC-DDD'));
    await settle();
    answers[0]?.(failure(503));
    await settle();
    assert.deepEqual([run.codes, run.warnings], [['CCC-DDD'], []]);
    sluice.stopEVPairing();
    await settle();
    assert.deepEqual(phone.pairings.stopped, [{ app_id: '1', pairing: 'second' }]);
  });

  for (const next of ['1', '2']) {
    test(`is not ended by the answer to a batch of an earlier one (of ${next === '1' ? 'this' : 'another'} app)`, async () => {
      const phone = createPhone();
      const run = phone.open();
      let answer = () => {};
      const sluice = createIosSluice();
      sluice.configure({
        ...run.adapters,
        fetch: async (url, init) => {
          const response = await (run.adapters.fetch ?? assert.fail())(url, init);
          if (JSON.parse(init.body).pairing === 'secret-1' && url.endsWith('/collect')) {
            await new Promise<void>((resolve) => {
              answer = resolve;
            });
          }
          return response;
        },
      });
      sluice.setAppId('1');
      sluice.startEVPairing();
      await settle();
      answerEnded(phone);
      sluice.track('of the first');
      await phone.clock.advance(1_000);
      phone.server.answerWith = () => undefined;
      sluice.stopEVPairing();
      sluice.setAppId(next);
      sluice.startEVPairing();
      await settle();
      answer();
      await settle();
      assert.deepEqual(run.codes, ['COD-1', '', 'COD-2']);
      sluice.track('of the second');
      await phone.clock.advance(1_000);
      assert.deepEqual(pairingsOf(phone), ['secret-1', 'secret-2']);
    });
  }

  test('also works with a base URL that ends with a slash', async () => {
    const phone = createPhone();
    const run = phone.open();
    const sluice = createIosSluice();
    sluice.configure({ ...run.adapters, baseUrl: `${run.adapters.baseUrl}/` });
    sluice.setAppId('1');
    sluice.startEVPairing();
    await settle();
    assert.deepEqual(run.codes, ['COD-1']);
  });

  test('ends with optOut', async () => {
    const { phone, run, sluice } = await pairIos();
    sluice.optOut();
    await settle();
    assert.deepEqual([phone.pairings.stopped.length, run.codes], [1, ['COD-1', '']]);
  });

  test('is shown in the console if the app cannot show it', async () => {
    const phone = createPhone();
    const { showPairingCode: _, hidePairingCode: __, ...adapters } = phone.open().adapters;
    const warnings: string[] = [];
    const sluice = createIosSluice();
    sluice.configure({ ...adapters, warn: (line) => void warnings.push(line) });
    sluice.setAppId('1');
    sluice.startEVPairing();
    await settle();
    assert.match(warnings.join(), /pairing code.* COD-1/);
    sluice.stopEVPairing();
    assert.equal(warnings.length, 1);
  });
});

describe('pairing that fails', () => {
  const refusals: readonly (readonly [name: string, answer: TransportAnswer, reason: RegExp])[] = [
    ['without a network', { status: 0, body: '' }, /no answer came/],
    ['for an unknown app', failure(400, 'unknown_app_id'), /unknown_app_id \(400\)/],
    ['when too many wait', failure(429, 'rate_limited', '60'), /\(429\)/],
    ['on a server without a visualizer', { status: 404, body: '<html>' }, /answered 404/],
    ['on an answer without a secret', { status: 201, body: '{"code":"AAA-BBB"}' }, /answered 201/],
    ['on an answer without a code', { status: 201, body: '{"pairing":"s"}' }, /answered 201/],
    ['on an answer that is no document', { status: 201, body: 'null' }, /answered 201/],
  ];

  for (const [name, answer, reason] of refusals) {
    test(`${name} is a warning, and can be tried again`, async () => {
      const { phone, run, sluice } = await openIos();
      phone.pairings.answer = () => answer;
      sluice.startEVPairing();
      await settle();
      assert.equal(run.warnings.length, 1);
      assert.match(run.warnings[0] ?? '', /^Sluice: pairing with the Event Visualizer failed: /);
      assert.match(run.warnings[0] ?? '', reason);
      assert.deepEqual(run.codes, []);
      phone.pairings.answer = () => opened('s', 'AAA-BBB');
      sluice.startEVPairing();
      await settle();
      assert.deepEqual(run.codes, ['AAA-BBB']);
    });
  }

  test('without an answer is a warning after 10 seconds', async () => {
    const { phone, run, sluice } = await openIos();
    phone.pairings.answer = () => new Promise(() => {});
    sluice.startEVPairing();
    await phone.clock.advance(9_999);
    assert.deepEqual(run.warnings, []);
    await phone.clock.advance(1);
    assert.match(run.warnings.join(), /no answer came/);
  });

  test('without an app is a warning', async () => {
    const { phone, run, sluice } = configureIos();
    sluice.startEVPairing();
    run.shake();
    await settle();
    assert.equal(run.warnings.length, 2);
    assert.match(run.warnings.join(), /startEVPairing needs an app first/);
    assert.equal(phone.pairings.asked.length, 0);
  });

  test('shows the code for ten minutes if the server does not say for how long', async () => {
    for (const seconds of [undefined, null, 0, -5, 'x', Number.NaN]) {
      const { phone, run, sluice } = await openIos();
      phone.pairings.answer = () => opened('s', 'AAA-BBB', seconds);
      sluice.startEVPairing();
      await phone.clock.advance(10 * 60_000 - 1);
      assert.deepEqual(run.codes, ['AAA-BBB']);
      await phone.clock.advance(1);
      assert.deepEqual(run.codes, ['AAA-BBB', '']);
    }
  });
});
