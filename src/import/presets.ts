// Turns rows of other systems' exports into records. Messages of Segment's protocol are sent as they are, to its endpoint, which
// understands identifications and traits. A row's key consists of what its system calls unique, so rows that are distinct there are
// distinct here. The presets for web analytics are in web-presets.ts.

import { epochSeconds } from '../contract/limits.js';
import { segmentTypes } from '../contract/segment.js';
import { readSegmentTime } from '../ingest/segment-message.js';
import { isoOf } from '../ingest/timestamp.js';
import {
  createUserMemory,
  type Fields,
  hashOf,
  instantIn,
  inUtc,
  joinedKey,
  type Made,
  milliseconds,
  objectOf,
  type Preset,
  type PresetOptions,
  seconds,
} from './preset.js';
import { faultIn, given, isGiven, nameIn } from './values.js';
import { createGa4, createMatomo, createPostHog, readPlausible, readUmami } from './web-presets.js';

export const presetNames = [
  'segment',
  'mixpanel',
  'amplitude',
  'heap',
  'posthog',
  'ga4',
  'plausible',
  'umami',
  'matomo',
] as const;
export type PresetName = (typeof presetNames)[number];

/** The preset of this name. */
export function createPreset(name: PresetName, options: PresetOptions): Preset {
  return presets[name](options);
}

const presets: Readonly<Record<PresetName, (options: PresetOptions) => Preset>> = {
  segment: createSegment,
  mixpanel: createMixpanel,
  amplitude: createAmplitude,
  heap: () => readHeap,
  posthog: createPostHog,
  ga4: createGa4,
  plausible: () => readPlausible,
  umami: () => readUmami,
  matomo: createMatomo,
};

/**
 * Segment's archive has corrected times, or what is needed to correct them: the sender's clock was wrong by the difference between sentAt
 * and receivedAt. A row's key is its messageId.
 * @see https://segment.com/docs/connections/spec/common/
 * @see https://segment.com/docs/guides/duplicate-data/
 */
function createSegment(): Preset {
  return ({ sentAt, originalTimestamp, receivedAt, writeKey: _, ...message }, key) => {
    const type = segmentTypes.find((known) => known === message.type);
    if (type === undefined) return `has a type that is none of ${segmentTypes.join(', ')}`;
    const [called, sent, received] = [originalTimestamp, sentAt, receivedAt].map((time) =>
      readSegmentTime(given(time)),
    );
    const corrected =
      called === undefined || sent === undefined || received === undefined
        ? undefined
        : received - (sent - called);
    const timestamp =
      given(message.timestamp) ??
      (corrected === undefined ? undefined : isoOf(corrected)) ??
      given(originalTimestamp) ??
      given(receivedAt) ??
      given(sentAt);
    if (timestamp === undefined) return 'has no timestamp, and no time at which it was sent or received';
    const whole = { ...message, timestamp, messageId: given(message.messageId) ?? key };
    return [{ kind: 'message', type, message: whole }];
  };
}

/**
 * Lines of Mixpanel's raw export. Times are in seconds or, in later exports, in milliseconds; in projects made before 2023 they are in the
 * project's time zone. An event is identified by its name, distinct_id, time and $insert_id together. A user and a device are merged by the
 * first event that has both $user_id and $device_id.
 * @see https://docs.mixpanel.com/reference/event-deduplication
 * @see https://docs.mixpanel.com/docs/tracking-methods/id-management/identifying-users-simplified
 * @see https://developer.mixpanel.com/reference/raw-event-export
 */
function createMixpanel({ zone, isShared }: PresetOptions): Preset {
  const identify = createUserMemory({ isShared });
  return ({ event, properties }, key) => {
    if (typeof properties !== 'object' || properties === null)
      return 'has no properties, so it is not a raw export';
    const { time, distinct_id, $device_id, $user_id, $insert_id, ...others } = properties as Fields;
    const timestamp = instantIn(
      'time',
      time,
      Number(time) >= epochSeconds.endsBefore ? milliseconds : seconds,
    );
    if (typeof timestamp === 'string') return timestamp;
    const device = typeof distinct_id === 'string' ? /^\$device:(.*)$/s.exec(distinct_id)?.[1] : undefined;
    const named = nameIn('$device_id', given($device_id) ?? device);
    const anonymous = isGiven($user_id) ? undefined : named;
    const user =
      anonymous !== undefined || (device !== undefined && !isGiven($user_id))
        ? { anonymousId: anonymous }
        : { identity: given($user_id) ?? given(distinct_id) };
    const id = nameIn('$insert_id', $insert_id);
    const fault = faultIn(anonymous) ?? faultIn(id);
    if (fault !== undefined) return fault;
    const timeMs = zone === undefined ? timestamp : zone.instantOf(timestamp);
    const eventKey =
      id === undefined ? key : joinedKey('mixpanel', id as string, hashOf(event, distinct_id, time));
    const made = {
      event,
      ...user,
      timestamp: isoOf(timeMs),
      idempotency_key: eventKey,
      properties: others,
    };
    const said = { user: $user_id, device: typeof named === 'string' ? named : undefined };
    return [
      { kind: 'event', event: made },
      ...identify({ ...said, traits: {}, timeMs, messageId: joinedKey(eventKey, 'user') }),
    ];
  };
}

/**
 * Lines of Amplitude's export API. An event that has a user and a device identifies the device. A row's key is its uuid, since files of one
 * hour may overlap in time.
 * @see https://amplitude.com/docs/apis/analytics/export
 */
function createAmplitude(options: PresetOptions): Preset {
  const identify = createUserMemory(options);
  return (row, key) => {
    const { event_type, user_id, device_id, event_time, uuid, session_id, user_properties } = row;
    const timeMs = instantIn('event_time', event_time, inUtc);
    if (typeof timeMs === 'string') return timeMs;
    const own = nameIn('uuid', uuid);
    const device = nameIn('device_id', device_id);
    const session = session_id === -1 ? undefined : nameIn('session_id', session_id);
    const fault = faultIn(own) ?? faultIn(device) ?? faultIn(session);
    if (fault !== undefined) return fault;
    const text = ['event_properties', 'user_properties'].find((name) => typeof row[name] === 'string');
    if (text !== undefined) return `has ${text} as a text, not as an object`;
    const id = own === undefined ? key : joinedKey('amplitude', own as string);
    const properties = { ...objectOf(row.event_properties) };
    for (const name of amplitudeColumns) if (row[name] !== undefined) properties[name] ??= row[name];
    const event = {
      event: event_type,
      ...(isGiven(user_id) ? { identity: user_id } : { anonymousId: device }),
      timestamp: isoOf(timeMs),
      idempotency_key: id,
      session_id: session,
      properties,
    };
    const said = {
      user: user_id,
      device: device as string | undefined,
      timeMs,
      messageId: joinedKey(id, 'user'),
    };
    return [{ kind: 'event', event }, ...identify({ ...said, traits: objectOf(user_properties) })];
  };
}

const amplitudeColumns = [
  'platform',
  'os_name',
  'os_version',
  'device_type',
  'device_family',
  'country',
  'region',
  'city',
  'language',
  'version_name',
] as const;

/**
 * Rows of Heap's exported events, with the table's name as the event. An event is in every table whose definition it meets, with the same
 * event_id, so the key includes the table.
 * @see https://help.heap.io/hc/en-us/articles/37271929896977
 */
function readHeap(row: Fields, key: string): readonly Made[] | string {
  const { event, event_table_name, type, identity, user_id, event_id, session_id, time, ...others } = row;
  const timestamp = instantIn('time', time, inUtc);
  if (typeof timestamp === 'string') return timestamp;
  const user = nameIn('user_id', user_id);
  const id = nameIn('event_id', event_id);
  const session = nameIn('session_id', session_id);
  const fault = faultIn(user) ?? faultIn(id) ?? faultIn(session);
  if (fault !== undefined) return fault;
  const table = given(event_table_name) ?? given(event) ?? type;
  return [
    {
      kind: 'event',
      event: {
        event: given(event) ?? table,
        ...(isGiven(identity) ? { identity } : { user_id: user }),
        timestamp: isoOf(timestamp),
        idempotency_key: id === undefined ? key : joinedKey('heap', id as string, hashOf(user, table)),
        session_id: session,
        properties: others,
      },
    },
  ];
}
