// Turns rows of other systems' exports into records. Messages of Segment's protocol are sent as they are, to its endpoint, which
// understands identifications and traits. A row's key consists of what its system calls unique, so rows that are distinct there are
// distinct here. The presets for web analytics are in web-presets.ts.

import { epochSeconds } from '../contract/limits.js';
import { segmentTypes } from '../contract/segment.js';
import { readSegmentTime } from '../ingest/segment-message.js';
import { isoOf } from '../ingest/timestamp.js';
import {
  createMaker,
  type EventRead,
  type Fields,
  hashOf,
  inUtc,
  joinedKey,
  type Made,
  milliseconds,
  objectOf,
  type Read,
  type ReadRow,
  seconds,
  userOrDevice,
} from './preset.js';
import { instantIn } from './times.js';
import { given, isGiven, nameIn, RowFault, textOf } from './values.js';
import { readGa4, readMatomo, readPlausible, readPostHog, readUmami } from './web-presets.js';
import type { Zone } from './zones.js';

const presets = {
  segment: readSegment,
  mixpanel: readMixpanel,
  amplitude: readAmplitude,
  heap: readHeap,
  posthog: readPostHog,
  ga4: readGa4,
  plausible: readPlausible,
  umami: readUmami,
  matomo: readMatomo,
} satisfies Readonly<Record<string, ReadRow>>;
export type PresetName = keyof typeof presets;
export const presetNames = Object.keys(presets) as readonly PresetName[];

/** Makes the records of a row. Throws RowFault. `key`: the key derived from the row's place. */
export type Preset = (row: Fields, key: string) => readonly Made[];

/** The preset of this name. `zone`, `isShared`: as for `ReadRow` and `createMaker`. */
export function createPreset(
  name: PresetName,
  zone: Zone | undefined,
  isShared: (user: string) => boolean,
): Preset {
  const make = createMaker(isShared);
  const read: ReadRow = presets[name];
  return (row, key) => [read(row, key, zone)].flat().flatMap(make);
}

/**
 * Segment's archive has corrected times, or what is needed to correct them: the sender's clock was wrong by the difference between sentAt
 * and receivedAt. A row's key is its messageId.
 * @see https://segment.com/docs/connections/spec/common/
 * @see https://segment.com/docs/guides/duplicate-data/
 */
function readSegment(
  { sentAt, originalTimestamp, receivedAt, writeKey: _, ...message }: Fields,
  key: string,
): Read {
  const type = segmentTypes.find((known) => known === message.type);
  if (type === undefined) throw new RowFault(`has a type that is none of ${segmentTypes.join(', ')}`);
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
  if (timestamp === undefined)
    throw new RowFault('has no timestamp, and no time at which it was sent or received');
  const messageId = given(message.messageId) ?? key;
  return { kind: 'message', type, message: { ...message, timestamp, messageId } };
}

/**
 * Lines of Mixpanel's raw export. Times are in seconds or, in later exports, in milliseconds; in projects made before 2023 they are in the
 * project's time zone. An event is identified by its name, distinct_id, time and $insert_id together. A user and a device are merged by the
 * first event that has both $user_id and $device_id.
 * @see https://docs.mixpanel.com/reference/event-deduplication
 * @see https://docs.mixpanel.com/docs/tracking-methods/id-management/identifying-users-simplified
 * @see https://developer.mixpanel.com/reference/raw-event-export
 */
function readMixpanel({ event, properties }: Fields, key: string, zone: Zone | undefined): EventRead {
  if (typeof properties !== 'object' || properties === null)
    throw new RowFault('has no properties, so it is not a raw export');
  const { time, distinct_id, $device_id, $user_id, $insert_id, ...others } = properties as Fields;
  const format = Number(time) >= epochSeconds.endsBefore ? milliseconds : seconds;
  const timestamp = instantIn('time', time, format);
  const ofId = typeof distinct_id === 'string' ? /^\$device:(.*)$/s.exec(distinct_id)?.[1] : undefined;
  const named = given($device_id) ?? ofId;
  // A device beside a user may be anything.
  const device = isGiven($user_id) ? textOf(named) : nameIn('$device_id', named);
  const isOfDevice = !isGiven($user_id) && (device !== undefined || ofId !== undefined);
  const id = nameIn('$insert_id', $insert_id);
  return {
    event,
    of: isOfDevice ? { anonymousId: device } : { identity: given($user_id) ?? given(distinct_id) },
    timeMs: zone === undefined ? timestamp : zone.instantOf(timestamp),
    key: id === undefined ? key : joinedKey('mixpanel', id, hashOf(event, distinct_id, time)),
    properties: others,
    said: { user: $user_id, device },
  };
}

/**
 * Lines of Amplitude's export API. An event that has a user and a device identifies the device. A row's key is its uuid, since files of one
 * hour may overlap in time.
 * @see https://amplitude.com/docs/apis/analytics/export
 */
function readAmplitude(row: Fields, key: string): EventRead {
  const { event_type, user_id, device_id, event_time, uuid, session_id, user_properties } = row;
  const timeMs = instantIn('event_time', event_time, inUtc);
  const own = nameIn('uuid', uuid);
  const device = nameIn('device_id', device_id);
  const session = session_id === -1 ? undefined : nameIn('session_id', session_id);
  const text = ['event_properties', 'user_properties'].find((name) => typeof row[name] === 'string');
  if (text !== undefined) throw new RowFault(`has ${text} as a text, not as an object`);
  const properties = { ...objectOf(row.event_properties) };
  for (const name of amplitudeColumns) if (row[name] !== undefined) properties[name] ??= row[name];
  return {
    event: event_type,
    of: userOrDevice(user_id, device),
    timeMs,
    key: own === undefined ? key : joinedKey('amplitude', own),
    session,
    properties,
    said: { user: user_id, device, traits: objectOf(user_properties) },
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
function readHeap(row: Fields, key: string): EventRead {
  const { event, event_table_name, type, identity, user_id, event_id, session_id, time, ...others } = row;
  const timeMs = instantIn('time', time, inUtc);
  const user = nameIn('user_id', user_id);
  const id = nameIn('event_id', event_id);
  const session = nameIn('session_id', session_id);
  const table = given(event_table_name) ?? given(event) ?? type;
  return {
    event: given(event) ?? table,
    of: isGiven(identity) ? { identity } : { user_id: user },
    timeMs,
    key: id === undefined ? key : joinedKey('heap', id, hashOf(user, table)),
    session,
    properties: others,
  };
}
