// From a checked event to its row: one line of JSONCompactEachRow, without the stamps that the commit script
// adds (segment, commit, time of acceptance). The order of the values is the order of columns in
// `clickhouse/tables.ts`. Pure, and on the path of every event.

import { arrayDelimiter, lengths } from '../contract/limits.js';
import type { CheckedEvent, Properties } from './check.js';

/** Encodes an event. The row lacks its number in the commit, which `pack.ts` appends. */
export function encodeEvent(appId: string, eventId: string, event: CheckedEvent): string {
  const time = event.time === undefined ? 'null' : `"${event.time}"`;
  const properties =
    event.properties === undefined
      ? '{}'
      : event.arrays
        ? encodeJoined(event.properties)
        : JSON.stringify(event.properties);
  return `["${appId}","${eventId}",${JSON.stringify(event.event)},${event.userId ?? 'null'},${JSON.stringify(
    event.identity,
  )},${JSON.stringify(event.sessionId)},${time},${properties},`;
}

/** Like JSON.stringify, with arrays joined. Written key by key, so that `__proto__` stays a plain key. */
function encodeJoined(properties: Properties): string {
  let encoded = '';
  for (const key in properties) {
    const value = properties[key];
    const text = Array.isArray(value) ? joinArray(value) : value;
    encoded += `${encoded === '' ? '{' : ','}${JSON.stringify(key)}:${JSON.stringify(text)}`;
  }
  return `${encoded}}`;
}

/**
 * Joins an array's elements with `||`, cut after 1024 code points. Stops reading at the cut, so that an
 * array of a million elements costs no more than one of a thousand.
 */
export function joinArray(elements: readonly (string | number)[]): string {
  let joined = '';
  for (let i = 0; i < elements.length; i++) {
    if (i > 0) joined += arrayDelimiter;
    joined += elements[i];
    if (joined.length > 2 * lengths.joinedArrayMax) break;
  }
  return cutToCodePoints(joined, lengths.joinedArrayMax);
}

/** The first `max` code points of a text. */
export function cutToCodePoints(text: string, max: number): string {
  if (text.length <= max) return text;
  let units = 0;
  for (let count = 0; count < max && units < text.length; count++) {
    const unit = text.charCodeAt(units);
    units += unit >= 0xd800 && unit <= 0xdbff ? 2 : 1;
  }
  return text.slice(0, units);
}
