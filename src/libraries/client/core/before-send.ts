// Lets the page change or drop whatever is recorded, before it is stored.

import type { Properties, PropertiesInput } from './messages.js';
import {
  autocaptureRules,
  checkEventName,
  checkIdentity,
  checkProperties,
  eventRules,
  userRules,
  type Warn,
} from './sanitize.js';

/** A message about to be recorded. `autocaptured`: the library itself made it, such as a page view. */
export type Draft =
  | { type: 'event'; event: string; properties: Properties; readonly autocaptured?: true | undefined }
  | { type: 'identify'; identity: string }
  | { type: 'user_properties'; properties: Properties };

/** A draft as a page may return it: with any properties that a call may pass. */
export type ReturnedDraft =
  | { type: 'event'; event: string; properties?: PropertiesInput<object> }
  | { type: 'identify'; identity: string }
  | { type: 'user_properties'; properties: PropertiesInput<object> };

/** Returns what to record instead; null or false records nothing. */
export type BeforeSend = (draft: Draft) => ReturnedDraft | null | false;

/** Returns the page's version of a draft, checked like a call's arguments; undefined if nothing is to be recorded. */
export type Review = <D extends Draft>(draft: D) => D | undefined;

export function createReview(
  beforeSend: () => BeforeSend | undefined,
  allowedIdentities: () => readonly string[],
  warn: Warn,
): Review {
  let reviewing = false;

  function ask(called: BeforeSend, draft: Draft): Draft | undefined {
    // Otherwise, what the page's function records would be passed to that function again, without end.
    if (reviewing) return void warn('a call within beforeSend is dropped.');
    const { type } = draft;
    reviewing = true;
    try {
      const returned = called(draft) as Partial<Draft> | null | false;
      if (returned === null || returned === false) return;
      if (returned.type === type) return checked({ ...draft, ...returned } as Draft);
    } catch {
      // The page failed to change this, so the original must not be recorded.
    } finally {
      reviewing = false;
    }
    warn(`a message is dropped: beforeSend threw, or returned no ${type}.`);
  }

  function checked(draft: Draft): Draft | undefined {
    if (draft.type === 'identify')
      return checkIdentity(draft.identity, allowedIdentities(), warn) === undefined ? undefined : draft;
    if (draft.type === 'user_properties')
      return { ...draft, properties: checkProperties(draft.properties, userRules, warn) };
    const rules = draft.autocaptured ? autocaptureRules : eventRules;
    return checkEventName(draft.event, warn) === undefined
      ? undefined
      : { ...draft, properties: checkProperties(draft.properties, rules, warn) };
  }

  return <D extends Draft>(draft: D) => {
    const called = beforeSend();
    return typeof called === 'function' ? (ask(called, draft) as D | undefined) : draft;
  };
}
