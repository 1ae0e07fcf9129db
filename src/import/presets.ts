// Exports of other systems: from a row of theirs to records of ours. Messages of Segment's protocol go as they are, by its
// endpoint, which knows identifications and traits. Pure, except for the memory of users whose properties were sent.

import { imports } from '../contract/limits.js';
import type { SegmentType } from '../contract/segment.js';
import { segmentTypes } from '../contract/segment.js';
import { readTime, type TimeFormat, textOfInstant } from './times.js';
import { faultIn, given, isGiven, nameIn } from './values.js';
import { utc } from './zones.js';

type Fields = Readonly<Record<string, unknown>>;

/** One record of a row, before it is mended and checked. */
export type Made =
  | { readonly kind: 'event'; readonly event: Fields }
  | { readonly kind: 'message'; readonly type: SegmentType; readonly message: Fields };

/** The records of a row, or why there are none. `key` follows from the row's place. */
export type Preset = (row: Fields, key: string) => readonly Made[] | string;

export const presetNames = ['segment', 'mixpanel', 'amplitude', 'heap'] as const;
export type PresetName = (typeof presetNames)[number];

export function createPreset(name: PresetName): Preset {
  return presets[name]();
}

const presets: Readonly<Record<PresetName, () => Preset>> = {
  segment: () => readSegment,
  mixpanel: () => readMixpanel,
  amplitude: createAmplitude,
  heap: () => readHeap,
};

/** The archive has corrected the time already, so what it was corrected by is left out. */
function readSegment(
  { sentAt: _, originalTimestamp, receivedAt: __, writeKey: ___, ...message }: Fields,
  key: string,
) {
  const type = segmentTypes.find((known) => known === message.type);
  if (type === undefined) return `has a type that is none of ${segmentTypes.join(', ')}`;
  const timestamp = given(message.timestamp) ?? originalTimestamp;
  return [
    { kind: 'message', type, message: { ...message, timestamp, messageId: given(message.messageId) ?? key } },
  ] as const;
}

const seconds: TimeFormat = { kind: 'number', unitNs: 1e9, zone: undefined };
const inUtc: TimeFormat = { kind: 'auto', zone: utc };

/** A line of its raw export. */
function readMixpanel({ event, properties }: Fields, key: string): readonly Made[] | string {
  if (typeof properties !== 'object' || properties === null)
    return 'has no properties, so it is not a raw export';
  const { time, distinct_id, $device_id, $user_id, $insert_id, ...others } = properties as Fields;
  const timestamp = timestampOf('time', time, seconds);
  if (typeof timestamp === 'object') return timestamp.fault;
  const device = typeof distinct_id === 'string' ? /^\$device:(.*)$/s.exec(distinct_id)?.[1] : undefined;
  const anonymous = isGiven($user_id) ? undefined : nameIn('$device_id', given($device_id) ?? device);
  const user =
    anonymous !== undefined || (device !== undefined && !isGiven($user_id))
      ? { anonymousId: anonymous }
      : { identity: given($user_id) ?? given(distinct_id) };
  const id = nameIn('$insert_id', $insert_id);
  const fault = faultIn(anonymous) ?? faultIn(id);
  if (fault !== undefined) return fault;
  const idempotency_key = id === undefined ? key : `mixpanel:${id}:${time}`;
  return [{ kind: 'event', event: { event, ...user, timestamp, idempotency_key, properties: others } }];
}

/** Lines of its export API. An event with a user and a device identifies the device. */
function createAmplitude(): Preset {
  const sent = new Map<string, string>();
  return (row, key) => {
    const { event_type, user_id, device_id, event_time, uuid, session_id, user_properties } = row;
    const timestamp = timestampOf('event_time', event_time, inUtc);
    if (typeof timestamp === 'object') return timestamp.fault;
    const own = nameIn('uuid', uuid);
    const device = nameIn('device_id', device_id);
    const session = session_id === -1 ? undefined : nameIn('session_id', session_id);
    const fault = faultIn(own) ?? faultIn(device) ?? faultIn(session);
    if (fault !== undefined) return fault;
    const id = own === undefined ? key : `amplitude:${own}`;
    const isUser = isGiven(user_id);
    const properties = { ...objectOf(row.event_properties) };
    for (const name of amplitudeColumns) if (row[name] !== undefined) properties[name] ??= row[name];
    const event = {
      event: event_type,
      ...(isUser ? { identity: user_id } : { anonymousId: device }),
      timestamp,
      idempotency_key: id,
      session_id: session,
      properties,
    };
    const records: Made[] = [{ kind: 'event', event }];
    const traits = objectOf(user_properties);
    const state = JSON.stringify([device, traits]);
    const user = `${user_id ?? ''}\0${device ?? ''}`;
    const isNews = isUser
      ? sent.get(user) !== state
      : Object.keys(traits).length > 0 && sent.get(user) !== state;
    if (!isNews) return records;
    if (sent.size >= imports.rememberedUsersMax) sent.clear();
    sent.set(user, state);
    const message = {
      userId: isUser ? user_id : undefined,
      anonymousId: device,
      traits,
      messageId: `${id}:user`,
    };
    return [...records, { kind: 'message', type: 'identify', message }];
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

/** Rows of its exported events, with the table's name as the event. */
function readHeap(row: Fields, key: string): readonly Made[] | string {
  const { event, event_table_name, type, identity, user_id, event_id, session_id, time, ...others } = row;
  const timestamp = timestampOf('time', time, inUtc);
  if (typeof timestamp === 'object') return timestamp.fault;
  const user = nameIn('user_id', user_id);
  const id = nameIn('event_id', event_id);
  const session = nameIn('session_id', session_id);
  const fault = faultIn(user) ?? faultIn(id) ?? faultIn(session);
  if (fault !== undefined) return fault;
  return [
    {
      kind: 'event',
      event: {
        event: given(event) ?? given(event_table_name) ?? type,
        ...(isGiven(identity) ? { identity } : { user_id: user }),
        timestamp,
        idempotency_key: id === undefined ? key : `heap:${id}`,
        session_id: session,
        properties: others,
      },
    },
  ];
}

function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}

function timestampOf(
  column: string,
  value: unknown,
  format: TimeFormat,
): string | undefined | { fault: string } {
  if (!isGiven(value)) return undefined;
  const time = readTime(value, format);
  return typeof time === 'number' ? textOfInstant(time) : { fault: `the column ${column} ${time}` };
}
