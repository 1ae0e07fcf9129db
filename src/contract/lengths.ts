// What one record and one request may hold. The client library reads this file too, so it imports nothing and holds
// plain values and sets only: the bundle then contains only the bounds that it uses.

/** Lengths are in Unicode code points. */
export const lengths = {
  eventMax: 1024,
  identityMax: 255,
  sessionIdMax: 255,
  idempotencyKeyMax: 255,
  /** "fewer than 1024 characters" */
  propertyKeyMax: 1023,
  propertyValueMax: 1023,
  joinedArrayMax: 1024,
  userPropertyValueMax: 255,
  clientEventMax: 255,
  /** "fewer than 255 characters" */
  clientIdentityMax: 254,
  /** The secret by which a device's messages reach the Event Visualizer. */
  pairingMax: 255,
} as const;

export const arrayDelimiter = '||';

export const reservedEventPropertyKeys: ReadonlySet<string> = new Set([
  'user_id',
  'session_id',
  'screen_name',
]);

/** The same for events that the client library records itself: there it sets the name of the screen. */
export const reservedAutocapturedPropertyKeys: ReadonlySet<string> = new Set(['user_id', 'session_id']);

export const reservedUserPropertyKeys: ReadonlySet<string> = new Set(['user_id']);

export const counts = {
  propertiesMax: 1000,
  bulkEventsMax: 1000,
  bulkUsersMax: 1000,
  /** Messages of the client library in one request. */
  collectMessagesMax: 1000,
  segmentMessagesMax: 1000,
  deletionTargetsMax: 10_000,
  lookupUsersMax: 1000,
  receiptKeysMax: 1000,
  exportUsersMax: 100,
  /** Nesting of a JSON document; valid requests need 5, flattened objects some more. */
  documentDepthMax: 64,
  /**
   * What a document of more than 64 KiB may hold, and each record in it; with more it is refused unparsed. It is enough for
   * the largest bulk request with all properties. Measured: a name costs JSON.parse up to 4 µs, an object 0.3.
   */
  documentContainersMax: 200_000,
  documentNamesMax: 1_100_000,
  documentElementsMax: 3_500_000,
  recordContainersMax: 10_000,
  recordNamesMax: 10_000,
  recordElementsMax: 250_000,
  /**
   * Numbers in a JSON document that have more than 15 digits, or are near the limits of doubles: each costs 1.5 µs. This is
   * half of all properties of the largest bulk request; with usual keys that many fill its body.
   */
  documentLongNumeralsMax: 500_000,
  recordLongNumeralsMax: 20_000,
} as const;

/** To delete this many users at once, or more, a person has to type their number in the console. */
export const confirmedUsersMin = 100;
