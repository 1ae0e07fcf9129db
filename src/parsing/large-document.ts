// Parses the bytes of a large body into its JSON document, record by record. The records of a bulk request are found in the
// text and parsed one by one, so no step costs more than one record, and the size of a record is limited. The result is the
// same as in `document.ts`. Pure.

import { isAscii, isUtf8 } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import { counts } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import {
  type Document,
  mayHoldSurrogates,
  notJson,
  notUtf8,
  tooDeep,
  tooManyLongNumerals,
} from './document.js';
import { beginsNumeral, endOfNumeral, endOfText } from './json-text.js';
import { keepNumerals, mayChange, type PropertyFields, propertyFields } from './numerals.js';
import type { Steps } from './steps.js';

/** A field of the document that holds the records of a bulk request, and how many there may be. */
export type RecordList = { readonly field: string; readonly recordsMax: number };

/** A part of the text that is parsed on its own. */
type Part = {
  readonly start: number;
  readonly end: number;
  /** Whether there may be numbers that a double cannot hold. */
  readonly numerals: boolean;
};

type Parts = { readonly rest: string; readonly restNumerals: boolean; readonly records: readonly Part[] };

/** How much is scanned in one step: about 0.5 ms. */
const charactersPerStep = 256 * 1024;
/** How much is decoded in one step: about 2 ms. */
const bytesPerStep = 512 * 1024;
/** Stands for the list in the text of the rest. Only this process knows it. */
const listMark = randomBytes(15).toString('base64url');

const tooManyValues = rejection(
  'too_many_values',
  `In a document of more than 64 KiB, a record may have at most ${counts.recordContainersMax} arrays and objects and ${counts.recordElementsMax} elements, and the whole ${counts.documentContainersMax} and ${counts.documentElementsMax}.`,
);
const tooManyNames = rejection(
  'too_many_properties',
  `In a document of more than 64 KiB, a record may have at most ${counts.recordNamesMax} names, and the whole ${counts.documentNamesMax}.`,
);

/**
 * Reads a whole body, which must not change meanwhile. `list`: the records that a request to this endpoint may have. If
 * there are too many, it reads one more than allowed, so that the request is refused. `fields`: those that hold properties.
 */
export function* readLargeDocument(
  body: Buffer,
  list: RecordList | undefined,
  fields: PropertyFields = propertyFields,
): Steps<Document | Rejection> {
  const text = yield* decode(body);
  if (text === undefined) return notUtf8;
  const parts = yield* divide(text, list);
  if ('code' in parts) return parts;

  const longNumerals = new Set<string>();
  let longLeft: number = counts.documentLongNumeralsMax;
  const parse = (json: string, numerals: boolean): { readonly value: unknown } | Rejection => {
    let value: unknown;
    try {
      value = JSON.parse(json);
    } catch {
      return notJson;
    }
    if (!numerals) return { value };
    const read = keepNumerals(json, value, Math.min(longLeft, counts.recordLongNumeralsMax), fields);
    if (read === undefined) return tooManyLongNumerals;
    longLeft -= read.longCount;
    for (const numeral of read.longNumerals) longNumerals.add(numeral);
    return { value: read.value };
  };
  const rest = parse(parts.rest, parts.restNumerals);
  if ('code' in rest) return rest;
  const records: unknown[] = [];
  for (const { start, end, numerals } of parts.records) {
    yield;
    const record = parse(text.slice(start, end), numerals);
    if ('code' in record) return record;
    records.push(record.value);
  }
  const value = rest.value as Record<string, unknown> | null;
  // A later field with the same name wins, as with JSON.parse.
  if (list !== undefined && value?.[list.field] === listMark) value[list.field] = records;
  return { value, longNumerals, surrogates: mayHoldSurrogates(text), isLarge: true };
}

const blank = /^[ \t\n\r]*$/;

/** The text of a body; undefined if it is not valid UTF-8. Decoding 16 MiB at once took 90 ms. */
function* decode(body: Buffer): Steps<string | undefined> {
  if (isAscii(body)) return body.toString('latin1');
  if (!isUtf8(body)) return undefined;
  let text = '';
  for (let start = 0, end = 0; start < body.length; start = end) {
    yield;
    end = Math.min(start + bytesPerStep, body.length);
    // A character that the cut would divide comes with the next bytes.
    while (end < body.length && ((body[end] as number) & 0xc0) === 0x80) end--;
    text += body.toString('utf8', start, end);
  }
  return text;
}

const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/**
 * Finds the records in a text, and counts its values. It reads valid JSON as JSON.parse does. For other texts it may return
 * anything, since JSON.parse then refuses a part of them.
 */
function* divide(text: string, list: RecordList | undefined): Steps<Parts | Rejection> {
  let depth = 0;
  let isObject = false;
  let allContainers = 0;
  let allNames = 0;
  let allElements = 0;
  /** Counts for the record that is being read, or for the rest. */
  let [containers, names, elements, numerals] = [0, 0, 0, false];
  let ofRest = { containers, names, elements, numerals };
  const records: Part[] = [];
  let rest = '';
  let restFrom = 0;
  let [keyStart, keyEnd] = [0, 0];
  let [inList, recordStart] = [false, 0];
  let pauseAt = charactersPerStep;

  for (let at = 0; at < text.length; at++) {
    if (at >= pauseAt) {
      pauseAt = at + charactersPerStep;
      yield;
    }
    const unit = text.charCodeAt(at);
    if (unit === quote) {
      const end = endOfText(text, at);
      if (end < 0) return notJson;
      if (depth === 1) [keyStart, keyEnd] = [at + 1, end];
      at = end;
    } else if (beginsNumeral(unit)) {
      const end = endOfNumeral(text, at);
      if (mayChange(text, at, end)) numerals = true;
      at = end - 1;
    } else if (unit === comma) {
      if (inList && depth === 2) {
        if (records.length <= (list?.recordsMax ?? 0))
          records.push({ start: recordStart, end: at, numerals });
        recordStart = at + 1;
        [containers, names, elements, numerals] = [0, 0, 0, false];
      } else if (++elements > counts.recordElementsMax || ++allElements > counts.documentElementsMax) {
        return tooManyValues;
      }
    } else if (unit === colon) {
      if (++names > counts.recordNamesMax || ++allNames > counts.documentNamesMax) return tooManyNames;
    } else if (unit === openBracket || unit === openBrace) {
      depth++;
      if (depth === 1) isObject = unit === openBrace;
      if (depth > counts.documentDepthMax) return tooDeep;
      if (++containers > counts.recordContainersMax || ++allContainers > counts.documentContainersMax) {
        return tooManyValues;
      }
      // Only the first field with this name is divided; a later one is parsed with the rest.
      const isList = unit === openBracket && depth === 2 && rest === '' && isObject;
      if (isList && text.slice(keyStart, keyEnd) === list?.field) {
        rest = `${text.slice(0, at)}"${listMark}"`;
        ofRest = { containers, names, elements, numerals };
        [inList, recordStart] = [true, at + 1];
        [containers, names, elements, numerals] = [0, 0, 0, false];
      }
    } else if (unit === closeBracket || unit === closeBrace) {
      if (inList && depth === 2) {
        if (unit !== closeBracket) return notJson;
        const isEmpty = records.length === 0 && blank.test(text.slice(recordStart, at));
        if (!isEmpty && records.length <= (list?.recordsMax ?? 0))
          records.push({ start: recordStart, end: at, numerals });
        inList = false;
        restFrom = at + 1;
        ({ containers, names, elements, numerals } = ofRest);
      }
      depth--;
      if (depth < 0) return notJson;
    }
  }
  if (inList) return notJson;
  return { rest: rest + text.slice(restFrom), restNumerals: numerals, records };
}
