// What one record and one request may hold. A file of its own, since the client library reads it too: it imports
// nothing and holds plain values only, so that the bundle takes what it uses and no other bound.

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

/** Keys that an event's properties must not use. */
export const reservedEventPropertyKeys: ReadonlySet<string> = new Set([
  'user_id',
  'session_id',
  'screen_name',
]);

/** The same for events that the client library captures by itself: it names the screen. */
export const reservedAutocapturedPropertyKeys: ReadonlySet<string> = new Set(['user_id', 'session_id']);

/** Keys that user properties must not use. */
export const reservedUserPropertyKeys: ReadonlySet<string> = new Set(['user_id']);

export const counts = {
  propertiesMax: 1000,
  bulkEventsMax: 1000,
  bulkUsersMax: 1000,
  /** Messages of the client library in one request. */
  collectMessagesMax: 1000,
  deletionTargetsMax: 10_000,
  /** Nesting of a JSON document; valid requests need 5, flattened objects some more. */
  documentDepthMax: 64,
  /**
   * Numbers of a JSON document with more than 15 digits, or near the ends of what doubles reach: each costs 1.5 µs. Half
   * of all properties of the largest bulk request; with usual keys that many fill its body.
   */
  documentLongNumeralsMax: 500_000,
} as const;
