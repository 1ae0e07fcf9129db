// Lets the page change or drop whatever is recorded, before it is kept.

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

/** What is about to be recorded. `autocaptured`: by the library itself, as a page view. */
export type Draft =
  | { type: 'event'; event: string; properties: Properties; readonly autocaptured?: true | undefined }
  | { type: 'identify'; identity: string }
  | { type: 'user_properties'; properties: Properties };

/** A draft as a page returns it: with any properties that a call may pass. */
export type ReturnedDraft =
  | { type: 'event'; event: string; properties?: PropertiesInput<object> }
  | { type: 'identify'; identity: string }
  | { type: 'user_properties'; properties: PropertiesInput<object> };

/** Returns what to record instead; null or false: nothing. */
export type BeforeSend = (draft: Draft) => ReturnedDraft | null | false;

/** Returns what the page made of a draft, checked like a call's arguments; undefined: it is not recorded. */
export type Review = <D extends Draft>(draft: D) => D | undefined;

export function createReview(
  beforeSend: () => BeforeSend | undefined,
  allowedIdentities: () => readonly string[],
  warn: Warn,
): Review {
  let reviewing = false;

  function ask(called: BeforeSend, draft: Draft): Draft | undefined {
    // Otherwise what the page's function records would be passed to it again, without end.
    if (reviewing) return void warn('a call within beforeSend is dropped.');
    const { type } = draft;
    reviewing = true;
    try {
      const returned = called(draft) as Partial<Draft> | null | false;
      if (returned === null || returned === false) return;
      if (returned.type === type) return checked({ ...draft, ...returned } as Draft);
    } catch {
      // The page wanted to change this and failed, so it is not recorded as it is.
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
