// What POST /api/track does with the fields of one event: types, lengths, users, properties, arrays, numbers and timestamps.
// There is one row per input, just inside and just outside of each bound. At the end one check compares everything that they
// stored. Lengths are in code points: an emoji is one, an accented letter of two parts is two.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ignoredFields, lengths, timestampAheadMsMax } from '../../src/contract/limits.js';
import { createEnvironments } from '../harness/accounts.js';
import { type Reply, track } from '../harness/track.js';
import {
  accepts,
  checkAccepted,
  checkRefused,
  describeRows,
  type Fields,
  openLedger,
  type Row,
  refuses,
  type Stored,
  sends,
  sendsText,
  withProperty,
} from '../harness/track-rows.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const ledger = openLedger(sluice, sluice.appId);

const manyProperties = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`key-${index}`, index]));
const asText = (properties: Fields) =>
  Object.fromEntries(Object.entries(properties).map(([key, value]) => [key, String(value)]));

const emoji = '😀';
/** Two code points that show as one character. */
const accented = 'e\u0301';
const loneSurrogates = ['\ud800', '\udfff', 'a\ud83d', '\ude00b', '\ude00\ud83d'];

const appIds: Row[] = [
  refuses('no app_id', 'missing_field', 'app_id', { app_id: undefined }),
  refuses('an empty app_id', 'empty', 'app_id', { app_id: '' }),
  ...[null, true, {}, []].map((app_id) =>
    refuses(`the app_id ${JSON.stringify(app_id)}`, 'invalid_type', 'app_id', { app_id }),
  ),
  ...['7', 'x'.repeat(10_240), '1e3', '\0', '*', "' OR 1=1 --", '{s0}'].map((app_id) =>
    refuses(`the unknown app_id ${JSON.stringify(app_id.slice(0, 20))}`, 'unknown_app_id', 'app_id', {
      app_id,
    }),
  ),
  {
    ...sends('the app_id as a number', 'invalid_type', (event) => ({
      body: { ...event, app_id: Number(event.app_id) },
    })),
    field: 'app_id',
  },
  ...[' ', '0', '+'].map((before) => ({
    ...sends(`the app_id with ${JSON.stringify(before)} before it`, 'unknown_app_id', (event) => ({
      body: { ...event, app_id: before + event.app_id },
    })),
    field: 'app_id',
  })),
];

const names: Row[] = [
  refuses('no event', 'missing_field', 'event', { event: undefined }),
  refuses('an empty event', 'empty', 'event', { event: '' }),
  ...[7, null, true, {}, ['x']].map((event) =>
    refuses(`the event ${JSON.stringify(event)}`, 'invalid_type', 'event', { event }),
  ),
  ...Object.entries({
    '1 character': 'x',
    '1024 characters': 'x'.repeat(lengths.eventMax),
    '1024 emoji': emoji.repeat(lengths.eventMax),
    '512 accented letters': accented.repeat(lengths.eventMax / 2),
    blanks: '   ',
    'quotes, backslash, tab, newline, NUL': `'"\\\t\n\0\\N`,
  }).map(([what, event]) => accepts(`an event of ${what}`, { event }, { event })),
  ...Object.entries({
    '1025 characters': 'x'.repeat(lengths.eventMax + 1),
    '1025 emoji': emoji.repeat(lengths.eventMax + 1),
    '512 accented letters and one': `${accented.repeat(lengths.eventMax / 2)}e`,
  }).map(([what, event]) => refuses(`an event of ${what}`, 'too_long', 'event', { event })),
  ...loneSurrogates.map((event) =>
    refuses(`the event ${JSON.stringify(event)}`, 'invalid_text', 'event', { event }),
  ),
];

const users: Row[] = [
  refuses('neither identity nor user_id', 'missing_user', 'identity', { identity: undefined }),
  refuses('identity and user_id', 'ambiguous_user', 'user_id', { user_id: '1' }),
  refuses('equal identity and user_id', 'ambiguous_user', 'user_id', { identity: '1', user_id: '1' }),
  refuses('identity and a user_id of null', 'invalid_type', 'user_id', { user_id: null }),
  refuses('user_id and an identity of null', 'invalid_type', 'identity', { identity: null, user_id: '1' }),
  refuses('an empty identity', 'empty', 'identity', { identity: '' }),
  refuses('an empty identity and a user_id', 'empty', 'identity', { identity: '', user_id: '1' }),
  ...[7, null, true, {}, ['x']].map((identity) =>
    refuses(`the identity ${JSON.stringify(identity)}`, 'invalid_type', 'identity', { identity }),
  ),
  ...Object.entries({
    '1 character': 'i',
    '255 characters': 'i'.repeat(lengths.identityMax),
    '255 emoji': emoji.repeat(lengths.identityMax),
    '127 accented letters and one': `${accented.repeat(127)}e`,
  }).map(([what, identity]) => accepts(`an identity of ${what}`, { identity }, { identity })),
  ...Object.entries({
    '256 characters': 'i'.repeat(lengths.identityMax + 1),
    '256 emoji': emoji.repeat(lengths.identityMax + 1),
    '128 accented letters': accented.repeat(128),
    '255 accented letters': accented.repeat(255),
  }).map(([what, identity]) => refuses(`an identity of ${what}`, 'too_long', 'identity', { identity })),
  ...loneSurrogates.map((identity) =>
    refuses(`the identity ${JSON.stringify(identity)}`, 'invalid_text', 'identity', { identity }),
  ),
  ...[
    'null',
    'user',
    'undefined',
    'anonymous',
    '[object Object]',
    '0',
    ' bob ',
    'bob',
    'Bob',
    'b\u043eb',
    'e\u0301',
    '\u00e9',
    'a\0b',
    '\u202eabc\u200f',
    '\u200b',
    "' OR 1=1 --",
    "\\'",
    '\\',
    '\\N',
    '{id:String}',
    '$1',
    '%s',
    '../../',
    '"}',
    '\n{"level":"fatal"}',
    '\r\n',
  ].map((identity) =>
    accepts(`the identity ${JSON.stringify(identity)}, kept byte by byte`, { identity }, { identity }),
  ),
  ...['0', '1', '4503599627370496', '9007199254740991'].map((user_id) =>
    accepts(`the user_id ${user_id}`, { identity: undefined, user_id }, { identity: '', user_id }),
  ),
  ...[
    '',
    '00',
    '01',
    '-0',
    '-1',
    '+1',
    ' 1',
    '1 ',
    '1\n',
    '1\0',
    '1e3',
    '0x10',
    '1.0',
    '1,000',
    '1_000',
    '1n',
    '9007199254740992',
    '9007199254740993',
    '18446744073709551615',
    '18446744073709551616',
    '9'.repeat(1000),
    '\u0661',
    '\uff11',
    'null',
    'NaN',
    'Infinity',
  ].map((user_id) =>
    refuses(`the user_id ${JSON.stringify(user_id.slice(0, 30))}`, 'invalid_user_id', 'user_id', {
      identity: undefined,
      user_id,
    }),
  ),
  ...[7, null, true, {}, ['1']].map((user_id) =>
    refuses(`the user_id ${JSON.stringify(user_id)} of another type`, 'invalid_type', 'user_id', {
      identity: undefined,
      user_id,
    }),
  ),
];

const sessionsAndKeys: Row[] = (['session_id', 'idempotency_key'] as const).flatMap((field) => {
  const kept = (value: string): Stored => (field === 'session_id' ? { session_id: value } : {});
  return [
    ...[
      ['1 character', 's'],
      ['255 characters', 's'.repeat(255)],
      ['255 emoji', emoji.repeat(255)],
      ['a colon', 'a:b'],
      ['digits', '123'],
      ['zero', '0'],
      ['braces', '{s0}'],
      ['a newline and NUL', 'a\n\0'],
    ].map(([what, value]) => accepts(`${field} of ${what}`, { [field]: value }, kept(value as string))),
    ...[
      ['256 characters', 's'.repeat(256)],
      ['256 emoji', emoji.repeat(256)],
      ['10 kB', 's'.repeat(10_240)],
    ].map(([what, value]) => refuses(`${field} of ${what}`, 'too_long', field, { [field]: value })),
    refuses(`an empty ${field}`, 'empty', field, { [field]: '' }),
    ...[7, null, true, {}, []].map((value) =>
      refuses(`${field} of ${JSON.stringify(value)}`, 'invalid_type', field, { [field]: value }),
    ),
    refuses(`${field} with a lone surrogate`, 'invalid_text', field, { [field]: '\ud800' }),
  ];
});

const keys: Row[] = [
  accepts('no properties', { properties: {} }),
  ...[null, [], ['x'], 'x', 1, true].map((properties) =>
    refuses(`properties of ${JSON.stringify(properties)}`, 'invalid_type', 'properties', { properties }),
  ),
  accepts(
    '1000 properties',
    { properties: manyProperties(1000) },
    { properties: asText(manyProperties(1000)) },
  ),
  refuses('1001 properties', 'too_many_properties', 'properties', { properties: manyProperties(1001) }),
  ...['user_id', 'session_id', 'screen_name'].map((key) =>
    refuses(`the property ${key}`, 'reserved_property', `properties.${key}`, { properties: { [key]: 'x' } }),
  ),
  ...[
    'User_id',
    'userId',
    'user_id ',
    'Screen_Name',
    'identity',
    'event',
    'app_id',
    'time',
    'timestamp',
    'email',
    'a.b',
    'a\nb',
    'a\r\u2028\u2029b',
    'a\tb',
    ' ',
    "'",
    '"',
    '\\',
    '||',
    '\0',
    emoji,
  ].map((key) =>
    accepts(
      `the property ${JSON.stringify(key)}`,
      { properties: { [key]: 'x' } },
      { properties: { [key]: 'x' } },
    ),
  ),
  ...Object.entries({
    '1023 characters': 'k'.repeat(lengths.propertyKeyMax),
    '1023 emoji': emoji.repeat(lengths.propertyKeyMax),
    '511 accented letters and one': `${accented.repeat(511)}e`,
  }).map(([what, key]) =>
    accepts(`a property key of ${what}`, { properties: { [key]: 'x' } }, { properties: { [key]: 'x' } }),
  ),
  ...Object.entries({
    '1024 characters': 'k'.repeat(lengths.propertyKeyMax + 1),
    '1024 emoji': emoji.repeat(lengths.propertyKeyMax + 1),
    '512 accented letters': accented.repeat(512),
  }).map(([what, key]) =>
    refuses(`a property key of ${what}`, 'too_long', 'properties', { properties: { [key]: 'x' } }),
  ),
  refuses('a lone surrogate in a property key', 'invalid_text', 'properties', {
    properties: { '\ud800': 'x' },
  }),
];

const values: Row[] = [
  ...Object.entries({
    'no character': '',
    '1023 characters': 'v'.repeat(lengths.propertyValueMax),
    '1023 emoji': emoji.repeat(lengths.propertyValueMax),
    '511 accented letters and one': `${accented.repeat(511)}e`,
    'controls, quotes and backslashes': '\0\x01\b\t\n\v\f\r\x1b\x7f"\'\\\\N\u0085\u2028\ufeff\uffff',
    JSON: '{"a":[1,"b"]}',
    digits: '007',
  }).map(([what, value]) =>
    accepts(`a value of ${what}`, { properties: { key: value } }, { properties: { key: value } }),
  ),
  ...Object.entries({
    '1024 characters': 'v'.repeat(lengths.propertyValueMax + 1),
    '1024 emoji': emoji.repeat(lengths.propertyValueMax + 1),
    '512 accented letters': accented.repeat(512),
  }).map(([what, value]) =>
    refuses(`a value of ${what}`, 'too_long', 'properties.key', { properties: { key: value } }),
  ),
  ...[true, false, null, {}, { a: 1 }].map((value) =>
    refuses(`the value ${JSON.stringify(value)}`, 'invalid_type', 'properties.key', {
      properties: { key: value },
    }),
  ),
  // A schema that checks keys by a pattern overlooks keys that contain line breaks.
  ...['a\nb', 'a\rb', 'a\u2028b', 'a\u2029b'].map((key) =>
    refuses(`a bad value under the key ${JSON.stringify(key)}`, 'invalid_type', `properties.${key}`, {
      properties: { [key]: { x: [1] } },
    }),
  ),
  refuses('one bad value among good ones', 'invalid_type', 'properties.bad', {
    properties: { good: 'x', bad: null, fine: 1 },
  }),
  ...loneSurrogates.map((value) =>
    refuses(`the value ${JSON.stringify(value)}`, 'invalid_text', 'properties.key', {
      properties: { key: value },
    }),
  ),
];

const numbers: Row[] = [
  ...Object.entries({
    '0': '0',
    '-0': '0',
    '-0.0': '0',
    '1e-400': '1e-400',
    '12.5': '12.5',
    '-12.50': '-12.5',
    '0.1': '0.1',
    '9007199254740991': '9007199254740991',
    '9007199254740993': '9007199254740993',
    '123456789012345680000': '123456789012345680000',
    '1e21': '1e+21',
    '-1.5e-7': '-1.5e-7',
    '5e-324': '5e-324',
    '1.7976931348623157e308': '1.7976931348623157e+308',
  }).map(([number, stored]) =>
    sendsText(`the number ${number}`, undefined, (json) => withProperty(json, 'number', number), {
      properties: { number: stored },
    }),
  ),
  ...['1e999', '-1e999', '[1, 1e999]', '9'.repeat(400)].map((number) => ({
    ...sendsText(`the number ${number}`, 'invalid_type', (json) => withProperty(json, 'number', number)),
    field: 'properties.number',
  })),
];

const joined = (name: string, list: readonly unknown[], stored: string) =>
  accepts(name, { properties: { list } }, { properties: { list: stored } });

const arrays: Row[] = [
  joined('an array of two', ['a', 'b'], 'a||b'),
  joined('an array of one', ['a'], 'a'),
  joined('an empty array', [], ''),
  joined('an array of empty strings', ['', '', ''], '||||'),
  joined('an array of numbers and strings', [1, 'a', 2.5, -0, 1e21], '1||a||2.5||0||1e+21'),
  joined('an array with the delimiter in it', ['a||b', 'c'], 'a||b||c'),
  joined(
    'an array of 1024 characters',
    ['x'.repeat(1000), 'y'.repeat(22)],
    `${'x'.repeat(1000)}||${'y'.repeat(22)}`,
  ),
  joined(
    'an array of 1025 characters, cut',
    ['x'.repeat(1000), 'y'.repeat(23)],
    `${'x'.repeat(1000)}||${'y'.repeat(22)}`,
  ),
  joined('an array with an element of 1025 characters, cut', ['x'.repeat(1025)], 'x'.repeat(1024)),
  joined('an array cut in the delimiter', ['x'.repeat(1023), 'y'], `${'x'.repeat(1023)}|`),
  joined('an array cut before the delimiter', ['x'.repeat(1024), 'y'], 'x'.repeat(1024)),
  joined(
    'an array of 1024 emoji',
    [emoji.repeat(1000), emoji.repeat(22)],
    `${emoji.repeat(1000)}||${emoji.repeat(22)}`,
  ),
  joined('an array of 1025 emoji, cut between two', [emoji.repeat(1025)], emoji.repeat(1024)),
  joined(
    'an array cut before an emoji',
    ['x'.repeat(1024), emoji].slice(0, 1).concat(emoji),
    'x'.repeat(1024),
  ),
  joined('an array cut after an emoji', [`${'x'.repeat(1023)}${emoji}y`], `${'x'.repeat(1023)}${emoji}`),
  joined(
    'an array of 200,000 elements, cut',
    Array.from({ length: 200_000 }, () => 'a'),
    'a||'.repeat(342).slice(0, 1024),
  ),
  ...[[['a']], [null], [true], [{}], ['a', undefined], ['a', ['b']]].map((list) =>
    refuses(`the array ${JSON.stringify(list)}`, 'invalid_type', 'properties.list', { properties: { list } }),
  ),
  ...[['\ud800'], ['\ud83d', '\ude00'], ['a', '\udfff']].map((list) => ({
    ...sends(`the array ${JSON.stringify(list)}`, 'invalid_text', (event) => ({
      body: { ...event, properties: { list } },
    })),
  })),
  sends('an array whose lone surrogate lies beyond the cut', 'invalid_text', (event) => ({
    body: { ...event, properties: { list: ['x'.repeat(2000), '\ud800'] } },
  })),
];

const timed = (timestamp: string, time: string) =>
  accepts(`the timestamp ${timestamp}`, { timestamp }, { time });

const atMs = (ms: number) => new Date(ms).toISOString();
const stored = (ms: number) => atMs(ms).replace('T', ' ').slice(0, -1);
const dayAheadMs = Date.now() + timestampAheadMsMax;
const tenYearsAgoMs = Date.now() - 3652 * 24 * 3600 * 1000;

const timestamps: Row[] = [
  timed('2024-01-01T00:00:00Z', '2024-01-01 00:00:00.000'),
  timed('2024-01-01T00:00:00+00:00', '2024-01-01 00:00:00.000'),
  timed('2024-01-01T00:00:00-00:00', '2024-01-01 00:00:00.000'),
  timed('2024-01-01T00:00:00+14:00', '2023-12-31 10:00:00.000'),
  timed('2024-01-01T00:00:00-12:00', '2024-01-01 12:00:00.000'),
  timed('2024-01-01T00:00:00+05:30', '2023-12-31 18:30:00.000'),
  timed('2024-01-01T00:00:00+15:00', '2023-12-31 09:00:00.000'),
  timed('2024-01-01T00:00:00+23:59', '2023-12-31 00:01:00.000'),
  timed('2024-01-01T00:00:00-23:59', '2024-01-01 23:59:00.000'),
  timed('2024-02-29T23:59:59.999Z', '2024-02-29 23:59:59.999'),
  timed('2000-02-29T00:00:00Z', '2000-02-29 00:00:00.000'),
  timed('2024-03-01T00:30:00+01:00', '2024-02-29 23:30:00.000'),
  timed('2023-12-31T23:30:00-01:00', '2024-01-01 00:30:00.000'),
  timed('2024-01-01T00:00:00.1Z', '2024-01-01 00:00:00.100'),
  timed('2024-01-01T00:00:00.12Z', '2024-01-01 00:00:00.120'),
  timed('2024-01-01T00:00:00.123Z', '2024-01-01 00:00:00.123'),
  timed('2024-01-01T00:00:00.123456789Z', '2024-01-01 00:00:00.123'),
  timed('2024-01-01T00:00:00.999999999+01:00', '2023-12-31 23:00:00.999'),
  timed('2024-01-01t00:00:00z', '2024-01-01 00:00:00.000'),
  timed('2024-01-01t00:00:00.5+01:00', '2023-12-31 23:00:00.500'),
  timed('1970-01-01T00:00:00Z', '1970-01-01 00:00:00.000'),
  timed('1970-01-01T01:00:00+01:00', '1970-01-01 00:00:00.000'),
  timed('1969-12-31T23:00:00-01:00', '1970-01-01 00:00:00.000'),
  timed('2016-12-31T23:59:59Z', '2016-12-31 23:59:59.000'),
  timed(atMs(tenYearsAgoMs), stored(tenYearsAgoMs)),
  timed(atMs(dayAheadMs - 2_000), stored(dayAheadMs - 2_000)),
  ...[
    '',
    '2024-01-01T00:00:00',
    '2024-01-01T00:00:00.000',
    '2024-01-01',
    '2024-01',
    '2024',
    '2024-01-01T00:00Z',
    '2024-01-01T00Z',
    '2024-01-01T00:00:00+0530',
    '2024-01-01T00:00:00+05',
    '2024-01-01T00:00:00+5:30',
    '20240101T000000Z',
    '2024-W01-1T00:00:00Z',
    '2024-001T00:00:00Z',
    '2024-01-01 00:00:00Z',
    '2024-01-01_00:00:00Z',
    '2024-01-01T00:00:00,5Z',
    '2024-01-01T00:00:00.Z',
    '2024-01-01T00:00:00.1234567890Z',
    '2024-01-01T00:00.5Z',
    ' 2024-01-01T00:00:00Z',
    '2024-01-01T00:00:00Z ',
    '2024-01-01T00:00:00Z\n',
    '\n2024-01-01T00:00:00Z',
    '2024-01-01T00:00:00 Z',
    '2024-01-01T00:00:00Z[Europe/Paris]',
    '2024-01-01T00:00:00+01:00[Europe/Paris]',
    '2024-01-01T00:00:00\u221201:00',
    '\u0662\u0660\u0662\u0664-01-01T00:00:00Z',
    '2024-1-1T00:00:00Z',
    '24-01-01T00:00:00Z',
    '2024-00-01T00:00:00Z',
    '2024-13-01T00:00:00Z',
    '2024-01-00T00:00:00Z',
    '2024-01-32T00:00:00Z',
    '2023-02-29T00:00:00Z',
    '1900-02-29T00:00:00Z',
    '2024-02-30T00:00:00Z',
    '2024-04-31T00:00:00Z',
    '2024-01-01T24:00:00Z',
    '2024-01-01T25:00:00Z',
    '2024-01-01T00:60:00Z',
    '2024-01-01T00:00:61Z',
    // Neither ClickHouse nor JavaScript can represent a leap second.
    '2016-12-31T23:59:60Z',
    '2024-01-01T00:00:00+24:00',
    '2024-01-01T00:00:00+05:60',
    '2024-01-01T00:00:00-24:00',
    '2024-01-01T00:00:00+01:00:00',
    '2024-01-01T00:00:00UTC',
    '2024-01-01T00:00:00+01:00Z',
    '-2024-01-01T00:00:00Z',
    '-000001-01-01T00:00:00Z',
    '+010000-01-01T00:00:00Z',
    '10000-01-01T00:00:00Z',
    'now',
    'today',
    '1704067200',
    '1704067200000',
    '1.7e12',
    'Mon, 01 Jan 2024 00:00:00 GMT',
    'Mon Jan 01 2024 00:00:00 GMT+0000',
    '01/01/2024',
    'Invalid Date',
    'null',
  ].map((timestamp) =>
    refuses(`the timestamp ${JSON.stringify(timestamp)}`, 'invalid_timestamp', 'timestamp', { timestamp }),
  ),
  ...[
    '0000-01-01T00:00:00Z',
    '0001-01-01T00:00:00Z',
    '1899-12-31T23:59:59Z',
    '1969-12-31T23:59:59.999Z',
    '1970-01-01T00:59:59.999+01:00',
    '2299-12-31T23:59:59Z',
    '2300-01-01T00:00:00Z',
    '9999-12-31T23:59:59Z',
    '9999-12-31T23:59:59-23:59',
  ].map((timestamp) =>
    refuses(`the timestamp ${timestamp}`, 'timestamp_out_of_range', 'timestamp', { timestamp }),
  ),
  {
    ...sends('a timestamp ten seconds more than a day ahead', 'timestamp_out_of_range', (event) => ({
      body: { ...event, timestamp: atMs(Date.now() + timestampAheadMsMax + 10_000) },
    })),
    field: 'timestamp',
  },
  ...[1704067200, 1704067200000, null, true, {}, []].map((timestamp) =>
    refuses(`the timestamp ${JSON.stringify(timestamp)} of another type`, 'invalid_type', 'timestamp', {
      timestamp,
    }),
  ),
];

for (const [title, rows] of Object.entries({
  app_id: appIds,
  event: names,
  'identity and user_id': users,
  'session_id and idempotency_key': sessionsAndKeys,
  'keys of properties': keys,
  'values of properties': values,
  'numbers in properties': numbers,
  'arrays in properties': arrays,
  timestamp: timestamps,
})) {
  describeRows(title, rows, () => ledger);
}

describe('the words of a wrong type', () => {
  const secret = 'ada@example.com';
  const cases: readonly (readonly [fields: Fields, words: string])[] = [
    [{ event: 7 }, 'event has the wrong type: it must be a string, but is a number.'],
    [{ event: null }, 'event has the wrong type: it must be a string, but is null.'],
    [{ timestamp: [secret] }, 'timestamp has the wrong type: it must be a string, but is an array.'],
    [{ properties: secret }, 'properties has the wrong type: it must be an object, but is a string.'],
    [
      { properties: { 'a/b~c': { secret } } },
      'properties.a/b~c has the wrong type: it must be a number, a string or an array, but is an object.',
    ],
    [
      { properties: { list: [secret, 1, [secret]] } },
      'properties.list has the wrong type: its element 2 must be a number or a string, but is an array.',
    ],
    [
      { properties: { list: [{ secret }] } },
      'properties.list has the wrong type: its element 0 must be a number or a string, but is an object.',
    ],
  ];
  for (const [fields, words] of cases) {
    test(`name what is expected and the kind that came, never the value: ${words}`, async () => {
      const reply = await track(sluice.baseUrl, { body: { ...ledger.newEvent('x'), ...fields } });
      checkRefused(reply, 'invalid_type');
      assert.equal((reply.json as { err: { message: string } }).err.message, words);
    });
  }

  test('are the same in a bulk request, and for an app_id that is a number', async () => {
    const { app_id, ...event } = ledger.newEvent('x');
    const words = 'event has the wrong type: it must be a string, but is a boolean.';
    const bulk = await track(sluice.baseUrl, {
      body: { app_id, events: [{ ...event, event: true }] },
    });
    assert.match(bulk.text, new RegExp(words));
    const numeric = await track(sluice.baseUrl, { body: { ...event, app_id: Number(app_id) } });
    assert.match(numeric.text, /app_id has the wrong type: it must be a string, but is a number\./);
  });

  test('say that a number beyond all doubles is too large', async () => {
    const body = withProperty(JSON.stringify(ledger.newEvent('x')), 'n', '1e999');
    const reply = await track(sluice.baseUrl, { body });
    assert.match(reply.text, /but is a number that is too large\./);
  });
});

describe('fields that the service does not know', () => {
  const ignoredIn = (reply: Reply) => reply.headers.get('sluice-ignored');

  test('are accepted, named in a header and counted', async () => {
    const [appId = ''] = await createEnvironments(sluice, [[]]);
    const event = { event: 'x', identity: 'ada' };
    const send = async (body: Fields) => {
      const reply = await track(sluice.baseUrl, { body: { app_id: appId, ...body } });
      checkAccepted(reply);
      return ignoredIn(reply);
    };
    assert.equal(await send(event), null);
    assert.equal(await send({ ...event, propertys: { a: 1 }, app: 'x' }), 'propertys, app');
    assert.equal(await send({ events: [event, { ...event, app_id: '7' }], event: 'x' }), 'event, app_id');
    assert.equal(await send({ ...event, 'ä, b\r\nX: y': 1 }), '%C3%A4%2C%20b%0D%0AX%3A%20y');
    const long = 'f'.repeat(ignoredFields.nameMax);
    assert.equal(await send({ ...event, [`${long}g`]: 1 }), long);
    const many = Array.from({ length: ignoredFields.namesMax + 1 }, (_, i) => `name${i}`);
    assert.equal(
      await send({ ...event, ...Object.fromEntries(many.map((name) => [name, 1])) }),
      [...many.slice(0, ignoredFields.namesMax), '...'].join(', '),
    );
    const sent = 2 + 2 + 1 + 1 + many.length;
    await until(async () => {
      const stats = (await sluice.admin('environments', 'stats', appId)) as { ignored_fields: number };
      return stats.ignored_fields === sent;
    }, `${sent} ignored fields are counted`);
  });

  test('are also named beside a refusal, which they may explain', async () => {
    const { event, ...rest } = ledger.newEvent('x');
    const reply = await track(sluice.baseUrl, { body: { ...rest, evnt: event } });
    checkRefused(reply, 'missing_field', 'event');
    assert.equal(ignoredIn(reply), 'evnt');
  });
});

describe('after all that', () => {
  test('exactly what was accepted is stored', () => ledger.check());
});
