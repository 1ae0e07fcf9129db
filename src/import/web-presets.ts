// Reads rows of exports of PostHog, Google Analytics 4, Plausible, Umami and Matomo. A device is merged into a user if the system says that
// they are the same. An id that strangers may share is never merged.

import { parseDocument } from '../parsing/document.js';
import {
  type EventRead,
  type Fields,
  hashOf,
  inUtc,
  joinedKey,
  microseconds,
  objectOf,
  type Read,
  seconds,
  userOrDevice,
} from './preset.js';
import { instantIn } from './times.js';
import { given, isGiven, nameIn, RowFault } from './values.js';

/**
 * Rows of PostHog's batch exports, of events or of persons. `$is_identified` says whether the distinct_id is a user; libraries that do not
 * send it name the device. Only `$identify` merges two ids. An event carries the properties that its person had at the time. A person has a
 * row for each of its ids; an id in the library's form was made by the library, not by the customer.
 * @see https://posthog.com/docs/data-pipelines/batch-exports/s3
 */
export function readPostHog(row: Fields, key: string): Read {
  const isPerson = row.event === undefined && row.person_id !== undefined;
  const [properties, ofPerson] = [row.properties, row.person_properties].map(objectIn);
  if (properties === undefined || ofPerson === undefined)
    throw new RowFault('has properties or person_properties that are no JSON object');
  const column = isPerson ? 'created_at' : 'timestamp';
  const timeMs = instantIn(column, row[column], inUtc);
  const { $session_id, $set, $set_once, $unset, $anon_distinct_id, ...others } = properties;
  const own = nameIn('uuid', row.uuid);
  const id = nameIn('distinct_id', row.distinct_id);
  const session = nameIn('$session_id', $session_id);
  const former = row.event === '$identify' ? nameIn('$anon_distinct_id', $anon_distinct_id) : undefined;
  if (isPerson) {
    if (row.is_deleted === true || row.is_deleted === 'true')
      throw new RowFault('is a person who was deleted');
    const who = ofLibrary.test(String(id)) ? { device: id } : { user: id };
    return {
      person: { ...who, traits: properties },
      timeMs,
      key: `posthog:${hashOf(row.person_id, id, row.person_version)}`,
    };
  }
  const isDevice =
    properties.$is_identified === false ||
    (properties.$is_identified === undefined && id === properties.$device_id);
  const traits = isGiven(row.person_properties) ? ofPerson : { ...objectOf($set_once), ...objectOf($set) };
  return {
    event: row.event,
    of: isDevice ? { anonymousId: id } : { identity: id },
    timeMs,
    key: own === undefined ? key : joinedKey('posthog', own),
    session,
    properties: others,
    said: { ...(isDevice ? { device: id } : { user: id, device: former }), traits },
  };
}

/**
 * An id in the library's form: a UUID or, from posthog-js before July 2023, time, random digits, browser, screen and time again, each in
 * hexadecimal.
 */
const ofLibrary =
  /^(?:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|([0-9a-f]{6})[0-9a-f]+-0[0-9a-f]+(-[0-9a-f]+){2}-\2[0-9a-f]+)$/i;

/** An object, or one in JSON text; undefined if it is neither. */
function objectIn(value: unknown): Fields | undefined {
  if (!isGiven(value)) return {};
  const read = typeof value === 'string' ? parseDocument(Buffer.from(value), 'all') : { value };
  if (
    !('value' in read) ||
    typeof read.value !== 'object' ||
    read.value === null ||
    Array.isArray(read.value)
  )
    return undefined;
  return read.value as Fields;
}

/**
 * Rows of Google Analytics' BigQuery export, as NDJSON or Parquet. They have no key. A row is identified by its place in its batch or, in
 * exports from before July 2024, which lack that, by its parameters.
 * @see https://support.google.com/analytics/answer/7029846
 */
export function readGa4(row: Fields): EventRead {
  const {
    event_name,
    event_timestamp,
    event_date,
    event_params,
    user_id,
    user_pseudo_id,
    user_properties,
    ...more
  } = row;
  const { event_bundle_sequence_id, batch_page_id, batch_ordering_id, batch_event_index, ...others } = more;
  const timeMs = instantIn('event_timestamp', event_timestamp, microseconds);
  const device = nameIn('user_pseudo_id', user_pseudo_id);
  const params = valuesOf('event_params', event_params);
  const { ga_session_id, ...ofEvent } = params;
  const place = [event_bundle_sequence_id, batch_page_id, batch_ordering_id, batch_event_index];
  const content = isGiven(batch_event_index) ? '' : JSON.stringify(params);
  return {
    event: event_name,
    of: userOrDevice(user_id, device),
    timeMs,
    key: `ga4:${hashOf(user_id, device, event_name, event_timestamp, ...place, content)}`,
    // The number is unique only among the sessions of one device.
    session: isGiven(ga_session_id) ? `${device ?? ''}.${ga_session_id}` : undefined,
    properties: { ...others, ...ofEvent },
    said: { user: user_id, device, traits: valuesOf('user_properties', user_properties) },
  };
}

/** `[{key, value: {string_value, int_value, float_value, double_value}}]` as an object. */
function valuesOf(column: string, list: unknown): Fields {
  if (!isGiven(list)) return {};
  if (!Array.isArray(list)) throw new RowFault(`has no list of keys and values in the column ${column}`);
  const pairs = list.map((entry): [string, unknown] => {
    const { key, value } = objectOf(entry);
    const { string_value, int_value, double_value, float_value } = objectOf(value);
    return [String(key), string_value ?? int_value ?? double_value ?? float_value];
  });
  return Object.fromEntries(pairs);
}

/**
 * Rows of Plausible's table `events_v2`, as JSON: `SELECT * FROM events_v2 FORMAT JSONEachRow`. The dashboard exports only totals. A
 * visitor's id changes daily and rows have no id, so their places are their keys.
 * @see https://github.com/plausible/analytics/blob/master/lib/plausible/clickhouse_event_v2.ex
 */
export function readPlausible(row: Fields, key: string): EventRead {
  const {
    name,
    timestamp,
    user_id,
    session_id,
    site_id: _,
    'meta.key': keys,
    'meta.value': values,
    ...others
  } = row;
  if (row.visitors !== undefined && user_id === undefined)
    throw new RowFault(
      'holds totals and no event: export the table events_v2 of Plausible’s ClickHouse instead',
    );
  const timeMs = instantIn('timestamp', timestamp, inUtc);
  if ([keys, values].some((list) => isGiven(list) && !Array.isArray(list)))
    throw new RowFault('has meta.key and meta.value as texts: export as JSONEachRow');
  const own = Object.fromEntries(
    ((keys ?? []) as unknown[]).map((one, at) => [String(one), (values as unknown[])?.[at]]),
  );
  return {
    event: name,
    of: { anonymousId: nameIn('user_id', user_id) },
    timeMs,
    key,
    session: nameIn('session_id', session_id),
    properties: { ...others, ...own },
  };
}

/**
 * Rows of `website_event.csv` in Umami's export. A session is derived from address and browser, so devices behind one address may share it.
 * So it is never merged into a user.
 * @see https://github.com/umami-software/umami/blob/master/db/clickhouse/schema.sql
 */
export function readUmami(row: Fields, key: string): EventRead {
  const { event_id, session_id, visit_id, distinct_id, created_at, event_type, event_name, ...more } = row;
  const { website_id: _, job_id: __, ...others } = more;
  const timeMs = instantIn('created_at', created_at, inUtc);
  const device = isGiven(distinct_id) ? undefined : nameIn('session_id', session_id);
  const id = nameIn('event_id', event_id);
  return {
    event: given(event_name) ?? (String(event_type) === '1' ? 'pageview' : undefined),
    of: userOrDevice(distinct_id, device),
    timeMs,
    key: id === undefined ? key : joinedKey('umami', id),
    session: nameIn('visit_id', visit_id),
    properties: others,
  };
}

/**
 * Visits as `Live.getLastVisitsDetails` of Matomo's API returns them, in JSON. Each action of a visit is an event. An action's key is its
 * number (`pageId`). Goals and orders have none, and are identified by their content and time.
 * @see https://developer.matomo.org/api-reference/reporting-api#Live
 * @see https://github.com/matomo-org/matomo/blob/5.x-dev/plugins/Actions/VisitorDetails.php
 */
export function readMatomo(visit: Fields, key: string): EventRead[] {
  const { idSite, idVisit, visitorId, userId, actionDetails } = visit;
  if (!Array.isArray(actionDetails))
    throw new RowFault('has no actionDetails, so it is no visit of Live.getLastVisitsDetails');
  const device = nameIn('visitorId', visitorId);
  const session = nameIn('idVisit', idVisit);
  const ofVisit = Object.fromEntries(
    Object.entries(visit).filter(([name]) => visitColumns.has(name) || /^dimension\d+$/.test(name)),
  );
  return actionDetails.map((action) => {
    const { type, timestamp, ...details } = objectOf(action);
    const timeMs = instantIn('timestamp', timestamp, seconds, 'has an action that ');
    const { pageId, goalId, orderId, eventAction, itemDetails, ...others } = details;
    const own = Object.entries(others).filter(
      ([name]) => !/Pretty$|^(icon|iconSVG|title|subtitle)$/.test(name),
    );
    const what = [type, pageId, goalId, orderId, isGiven(pageId) ? '' : timestamp];
    return {
      event: type === 'action' ? 'pageview' : (given(eventAction) ?? type),
      of: userOrDevice(userId, device),
      timeMs,
      key: `matomo:${hashOf(idSite, session ?? key, ...what)}`,
      session,
      properties: {
        ...ofVisit,
        ...Object.fromEntries(own),
        type,
        goalId,
        orderId,
        eventAction,
        itemDetails,
      },
      said: { user: userId, device },
    };
  });
}

/** The columns of a visit that its actions do not have. */
const visitColumns: ReadonlySet<string> = new Set([
  'deviceType',
  'deviceBrand',
  'deviceModel',
  'operatingSystemName',
  'operatingSystemVersion',
  'browserName',
  'browserVersion',
  'resolution',
  'languageCode',
  'countryCode',
  'region',
  'city',
  'referrerType',
  'referrerName',
  'referrerKeyword',
  'referrerUrl',
  'campaignName',
  'campaignSource',
  'campaignMedium',
]);
