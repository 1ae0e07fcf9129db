// What rows of PostHog, Google Analytics 4, Plausible, Umami and Matomo become, as these systems document or write them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { userIdOfAnonymousId } from '../../src/contract/user-id.js';
import { createMapper } from '../../src/import/mapping.js';
import { type ImportOptions, readOptions } from '../../src/import/options.js';
import type { PresetName } from '../../src/import/presets.js';

type Sent = Readonly<Record<string, unknown>>;
const plain = { surrogates: false, longNumerals: new Set<string>() };

/** What each row becomes: its records, or why it is refused. */
function mapped(preset: PresetName, ...rows: readonly Sent[]): (readonly Sent[] | string)[] {
  const options = readOptions(['x', '--app-id', '1', '--preset', preset], {}) as ImportOptions;
  const mapper = createMapper(options, 'f'.repeat(32));
  return rows.map((value, at) => {
    const result = mapper.map({ ...plain, place: at + 1, value });
    return 'fault' in result ? result.fault : result.map(({ json }) => JSON.parse(json) as Sent);
  });
}

const recordsOf = (...args: Parameters<typeof mapped>): readonly Sent[] =>
  mapped(...args).flatMap((one) => {
    assert.notEqual(typeof one, 'string', String(one));
    return one as readonly Sent[];
  });
const keysOf = (records: readonly Sent[]) => records.map((one) => one.idempotency_key ?? one.messageId);
const usersOf = (records: readonly Sent[]) => records.map((one) => one.identity ?? one.user_id);

describe('PostHog', () => {
  const device = '0190d1c2-7f5e-7abc-8def-0123456789ab';
  const event = {
    uuid: '0190d1c2-0000-7000-8000-000000000001',
    event: '$pageview',
    distinct_id: device,
    person_id: '0190d1c2-0000-7000-8000-00000000000a',
    timestamp: '2024-07-20 10:00:00.123000',
    properties: `{"$session_id": "s1", "$device_id": "${device}", "n": 12345678901234567890}`,
    person_properties: '{}',
  };

  test('an event of a device, with properties as a JSON text or an object, keeps all digits', () => {
    const [view] = recordsOf('posthog', event);
    assert.deepEqual(view, {
      event: '$pageview',
      user_id: userIdOfAnonymousId(device),
      timestamp: '2024-07-20T10:00:00.123Z',
      idempotency_key: `posthog:${event.uuid}`,
      session_id: 's1',
      properties: { $device_id: device, n: '12345678901234567890' },
    });
    const asObject = { ...event, properties: { $session_id: 's1', $device_id: device } };
    assert.deepEqual(usersOf(recordsOf('posthog', asObject)), [userIdOfAnonymousId(device)]);
  });

  test('$is_identified says who is a user, and only $identify merges a device into one', () => {
    const of = (more: object, properties: object) =>
      ({ ...event, distinct_id: 'ada', ...more, properties: { $device_id: device, ...properties } }) as Sent;
    const anonymous = of({}, { $is_identified: false });
    assert.deepEqual(usersOf(recordsOf('posthog', anonymous)), [userIdOfAnonymousId('ada')]);
    assert.deepEqual(usersOf(recordsOf('posthog', of({ distinct_id: device }, { $is_identified: true }))), [
      device,
    ]);
    const [first, merged, ...others] = recordsOf(
      'posthog',
      of({ event: '$identify' }, { $is_identified: true, $anon_distinct_id: device }),
    );
    assert.equal(first?.identity, 'ada');
    assert.deepEqual([merged?.type, merged?.userId, merged?.anonymousId], ['identify', 'ada', device]);
    assert.equal(others.length, 0);
    const later = recordsOf(
      'posthog',
      of({ event: 'paid' }, { $is_identified: true, $anon_distinct_id: device }),
    );
    assert.equal(
      later.some(({ anonymousId }) => anonymousId !== undefined),
      false,
    );
  });

  test('properties of a person are those of the latest event, or what the event sets', () => {
    const at = (hour: string, plan: string) => ({
      ...event,
      uuid: plan,
      distinct_id: 'ada',
      properties: {},
      timestamp: `2024-07-20T${hour}:00:00Z`,
      person_properties: { plan },
    });
    const traits = recordsOf('posthog', at('10', 'b'), at('09', 'a'), at('11', 'b'), at('12', 'c'))
      .filter(({ type }) => type === 'identify')
      .map((one) => [one.traits, one.timestamp]);
    assert.deepEqual(traits, [
      [{ plan: 'b' }, '2024-07-20T10:00:00.000Z'],
      [{ plan: 'c' }, '2024-07-20T12:00:00.000Z'],
    ]);
    const set = { $set: { plan: 'x' }, $set_once: { plan: 'y', first: 'z' } };
    const [, identify] = recordsOf('posthog', {
      ...event,
      distinct_id: 'ada',
      properties: set,
      person_properties: null,
    });
    assert.deepEqual(identify?.traits, { plan: 'x', first: 'z' });
  });

  test('a person has its properties for each of its ids; one that was deleted is refused', () => {
    const person = {
      team_id: 2,
      distinct_id: 'ada',
      person_id: event.person_id,
      properties: '{"plan": "pro"}',
      person_version: 3,
      person_distinct_id_version: 1,
      created_at: '2024-01-01 00:00:00',
    };
    const records = recordsOf('posthog', person, { ...person, distinct_id: device });
    assert.deepEqual(
      records.map((one) => [one.type, one.userId, one.anonymousId, one.traits, one.timestamp]),
      [
        ['identify', 'ada', undefined, { plan: 'pro' }, '2024-01-01T00:00:00.000Z'],
        ['identify', undefined, device, { plan: 'pro' }, '2024-01-01T00:00:00.000Z'],
      ],
    );
    assert.match(String(mapped('posthog', { ...person, is_deleted: true })), /deleted/);
    const older = '17a8c9d3e5f4b0-0aa346c03894bc-39667c0e-1aeaa0-17a8c9d3e5f123';
    const [ofDevice, ...customers] = recordsOf(
      'posthog',
      { ...person, distinct_id: older },
      ...['1-2-3-4-5', 'cafe-0bad-beef-feed-cafe', `${older}-1`].map((distinct_id) => ({
        ...person,
        distinct_id,
      })),
    );
    assert.deepEqual([ofDevice?.userId, ofDevice?.anonymousId], [undefined, older]);
    assert.ok(customers.every(({ userId }) => typeof userId === 'string'));
  });

  test('properties that are no object, and rows without a time, are refused', () => {
    for (const properties of ['[1]', 'nothing', '"x"', 7, [1]])
      assert.match(String(mapped('posthog', { ...event, properties })), /no JSON object/);
    assert.match(
      String(mapped('posthog', { ...event, timestamp: null })),
      /has no time in the column timestamp/,
    );
  });
});

describe('Google Analytics 4', () => {
  const event = {
    event_date: '20240720',
    event_timestamp: '1721469600123456',
    event_name: 'purchase',
    event_params: [
      { key: 'ga_session_id', value: { int_value: '1721469000' } },
      { key: 'currency', value: { string_value: 'EUR' } },
      { key: 'value', value: { double_value: 12.5 } },
      { key: 'engaged', value: { string_value: null, int_value: 1 } },
    ],
    user_pseudo_id: '11.22',
    user_properties: [],
    event_bundle_sequence_id: '3',
    device: { category: 'mobile', web_info: { browser: 'Firefox' } },
    items: [{ item_id: 'a', price: 5 }, { item_id: 'b' }],
  };

  test('parameters become properties, and nested columns have paths', () => {
    const [sent] = recordsOf('ga4', event);
    assert.deepEqual(
      { ...sent, idempotency_key: undefined },
      {
        event: 'purchase',
        user_id: userIdOfAnonymousId('11.22'),
        timestamp: '2024-07-20T10:00:00.123Z',
        idempotency_key: undefined,
        session_id: '11.22.1721469000',
        properties: {
          'device.category': 'mobile',
          'device.web_info.browser': 'Firefox',
          'items.0.item_id': 'a',
          'items.0.price': 5,
          'items.1.item_id': 'b',
          currency: 'EUR',
          value: 12.5,
          engaged: 1,
        },
      },
    );
  });

  test('the same row has the same key in every file, and rows that differ in their batch or parameters another', () => {
    const other = [...event.event_params.slice(1), { key: 'n', value: { int_value: '1' } }];
    const rows = [
      event,
      { ...event, event_params: other },
      { ...event, event_bundle_sequence_id: '4' },
      { ...event, batch_event_index: '1' },
      { ...event, batch_event_index: '2' },
      { ...event, user_pseudo_id: '11.23' },
      { ...event, event_timestamp: '1721469600123457' },
      { ...event, event_name: 'refund' },
    ];
    const keys = keysOf(recordsOf('ga4', ...rows));
    assert.equal(new Set(keys).size, rows.length);
    assert.deepEqual(keysOf(recordsOf('ga4', ...rows.toReversed())).toReversed(), keys);
  });

  test('a user_id is the user, merged with the device, with the properties', () => {
    const user_properties = [{ key: 'plan', value: { string_value: 'pro', set_timestamp_micros: 1 } }];
    const [sent, identify] = recordsOf('ga4', { ...event, user_id: 'ada', user_properties });
    assert.equal(sent?.identity, 'ada');
    assert.deepEqual(
      [identify?.userId, identify?.anonymousId, identify?.traits],
      ['ada', '11.22', { plan: 'pro' }],
    );
  });

  test('rows without anybody, without a time or with other parameters are refused', () => {
    assert.match(String(mapped('ga4', { ...event, user_pseudo_id: null })), /identity/);
    assert.match(String(mapped('ga4', { ...event, event_timestamp: 'today' })), /event_timestamp/);
    assert.match(String(mapped('ga4', { ...event, event_params: '[]' })), /no list of keys and values/);
  });

  test('properties that change back are sent, whichever rows and devices lie between', () => {
    const at = (minute: number, plan: string, device: string) => ({
      ...{ event_name: 'x', event_timestamp: minute * 60e6, user_id: 'ada', user_pseudo_id: device },
      user_properties: [{ key: 'plan', value: { string_value: plan } }],
    });
    const plansOf = (...rows: readonly ReturnType<typeof at>[]) =>
      recordsOf('ga4', ...rows)
        .filter(({ type }) => type === 'identify')
        .map(({ traits }) => (traits as { plan?: string }).plan);
    const back = [at(1, 'free', 'phone'), at(2, 'pro', 'web'), at(3, 'free', 'phone')];
    assert.deepEqual(plansOf(...back), ['free', 'pro', 'free']);
    const late = [at(1, 'free', 'phone'), at(5, 'free', 'phone'), at(3, 'pro', 'phone')];
    assert.deepEqual(plansOf(...late), ['free'], 'an older value is not sent later');
    const devices = [at(1, 'free', 'phone'), at(2, 'free', 'web'), at(3, 'free', 'phone')];
    assert.deepEqual(plansOf(...devices), ['free', undefined], 'the second one only merges a device');
  });
});

describe('Plausible', () => {
  const event = {
    name: 'Signup',
    site_id: 7,
    hostname: 'example.com',
    pathname: '/join',
    user_id: '12345678901234567890',
    session_id: '42',
    timestamp: '2024-07-20 10:00:00',
    'meta.key': ['plan', 'n'],
    'meta.value': ['pro', '2'],
  };

  test('a row of its table is an event of a visitor, with its own properties, and distinguished by its place', () => {
    const [sent, same] = recordsOf('plausible', event, event);
    assert.deepEqual(
      { ...sent, idempotency_key: undefined },
      {
        event: 'Signup',
        user_id: userIdOfAnonymousId('12345678901234567890'),
        timestamp: '2024-07-20T10:00:00.000Z',
        idempotency_key: undefined,
        session_id: '42',
        properties: { hostname: 'example.com', pathname: '/join', plan: 'pro', n: '2' },
      },
    );
    assert.notEqual(sent?.idempotency_key, same?.idempotency_key);
  });

  test('totals of the dashboard, and properties as texts, are refused with what to do', () => {
    const totals = { date: '2024-07-20', visitors: '3', pageviews: '5' };
    assert.match(String(mapped('plausible', totals)), /totals and no event: export the table events_v2/);
    assert.match(String(mapped('plausible', { ...event, 'meta.key': "['plan']" })), /JSONEachRow/);
  });
});

describe('Umami', () => {
  const event = {
    website_id: 'w',
    session_id: '5b1e0f5e-0000-5000-8000-000000000001',
    visit_id: '5b1e0f5e-0000-5000-8000-000000000002',
    event_id: '5b1e0f5e-0000-5000-8000-000000000003',
    url_path: '/a',
    event_type: '1',
    event_name: '',
    distinct_id: '',
    created_at: '2024-07-20 10:00:00',
    job_id: '',
  };

  test('a row is a view or an event of a session, or of the user that the site named, who are never merged', () => {
    const named = { ...event, event_id: 'e2', event_type: '2', event_name: 'Signup', distinct_id: 'ada' };
    const records = recordsOf('umami', event, named);
    assert.deepEqual(
      records.map((one) => [one.event, one.identity ?? one.user_id, one.session_id, one.idempotency_key]),
      [
        ['pageview', userIdOfAnonymousId(event.session_id), event.visit_id, `umami:${event.event_id}`],
        ['Signup', 'ada', event.visit_id, 'umami:e2'],
      ],
    );
    assert.deepEqual(records[0]?.properties, { url_path: '/a' });
  });

  test('a row without a time, or whose event has no name, is refused', () => {
    assert.match(String(mapped('umami', { ...event, created_at: '' })), /created_at/);
    assert.equal(typeof mapped('umami', { ...event, event_type: '2' })[0], 'string');
  });
});

describe('Matomo', () => {
  const visit = {
    idSite: '1',
    idVisit: '77',
    visitorId: 'f66bc315f2a01a79',
    userId: null,
    countryCode: 'de',
    browserIcon: 'x.png',
    dimension1: 'gold',
    actionDetails: [
      {
        type: 'action',
        url: 'https://example.com/a',
        pageTitle: 'A',
        pageId: '5',
        timestamp: 1721469600,
        icon: null,
        serverTimePretty: 'Jul 20, 2024 10:00:00',
      },
      {
        type: 'event',
        eventCategory: 'Video',
        eventAction: 'Play',
        eventName: 'intro',
        pageId: '6',
        timestamp: 1721469601,
      },
      { type: 'goal', goalId: '2', goalName: 'Sold', revenue: '9.5', timestamp: 1721469602 },
    ],
  };

  test('each action of a visit is an event with what the visit says', () => {
    const records = recordsOf('matomo', visit);
    assert.deepEqual(
      records.map((one) => [one.event, one.user_id, one.session_id, one.timestamp]),
      ['pageview', 'Play', 'goal'].map((name, second) => [
        name,
        userIdOfAnonymousId('f66bc315f2a01a79'),
        '77',
        `2024-07-20T10:00:0${second}.000Z`,
      ]),
    );
    assert.deepEqual(records[0]?.properties, {
      countryCode: 'de',
      dimension1: 'gold',
      url: 'https://example.com/a',
      pageTitle: 'A',
      type: 'action',
    });
  });

  test('a visit that was exported again with more actions has its old keys', () => {
    const keys = keysOf(recordsOf('matomo', visit));
    const grown = {
      ...visit,
      actionDetails: [
        ...visit.actionDetails,
        { type: 'download', url: 'x', pageId: '8', timestamp: 1721469603 },
      ],
    };
    const more = keysOf(recordsOf('matomo', grown));
    assert.deepEqual(more.slice(0, 3), keys);
    assert.equal(new Set(more).size, 4);
    assert.equal(new Set([...keys, ...keysOf(recordsOf('matomo', { ...visit, idSite: '2' }))]).size, 6);
  });

  test('a visit of a user merges the device into the user once', () => {
    const records = recordsOf(
      'matomo',
      { ...visit, userId: 'ada' },
      { ...visit, idVisit: '78', userId: 'ada' },
    );
    const merges = records.filter(({ type }) => type === 'identify');
    assert.deepEqual(
      merges.map((one) => [one.userId, one.anonymousId]),
      [['ada', 'f66bc315f2a01a79']],
    );
  });

  test('a row that is no visit, or has an action without a time, is refused', () => {
    assert.match(String(mapped('matomo', { result: 'error', message: 'no' })), /no actionDetails/);
    assert.match(
      String(mapped('matomo', { ...visit, actionDetails: [{ type: 'action' }] })),
      /an action that has no time/,
    );
  });
});
