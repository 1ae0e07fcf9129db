// The table of all outcomes of a request: code, HTTP status, meaning, and whether a caller should send the same request
// again. They are returned as values, never thrown. The documentation, the metrics' labels and the tests read this
// table. It imports nothing, since the client library reads it too.

export type OutcomeCode = keyof typeof outcomes;

export type Outcome = {
  readonly status: number;
  /** `later`: the same request can succeed after waiting; `never`: it cannot. */
  readonly retry: 'never' | 'later';
  readonly meaning: string;
};

export const outcomes = {
  // The request as a whole.
  invalid_framing: never(400, 'The HTTP framing is ambiguous or malformed; the connection is closed.'),
  invalid_content_type: never(
    400,
    'Content-Type must be application/json, in UTF-8; where browsers send, also text/plain or none.',
  ),
  unsupported_encoding: never(
    415,
    'Content-Encoding must be absent, identity, gzip, deflate or, where Node has it, zstd.',
  ),
  invalid_encoding: never(400, 'The body is not encoded as its Content-Encoding says.'),
  headers_too_large: never(431, 'The headers, all together, are larger than HEADER_BYTES_MAX.'),
  body_too_large: never(413, 'The body, after inflating, is larger than this endpoint accepts.'),
  invalid_json: never(400, 'The body is not one JSON document in UTF-8.'),
  too_deep: never(400, 'The document is nested too deeply.'),
  too_many_values: never(
    400,
    'The document has more arrays, objects, names or elements than any request needs.',
  ),
  not_found: never(404, 'There is no such resource.'),
  method_not_allowed: never(405, 'This path accepts another method.'),

  // The fields of a record.
  missing_field: never(400, 'A required field is absent.'),
  invalid_type: never(400, 'A field has the wrong type.'),
  empty: never(400, 'A field that needs at least one character or element is empty.'),
  too_long: never(
    400,
    'A string has more characters than its field accepts, or the request becomes too many bytes or digits once it is converted.',
  ),
  invalid_text: never(400, 'A string contains a lone surrogate, so it is not Unicode text.'),
  missing_user: never(400, 'Neither identity nor user_id is given; exactly one is needed.'),
  ambiguous_user: never(400, 'Both identity and user_id are given; exactly one is allowed.'),
  invalid_user_id: never(400, 'user_id is not the plain decimal form of an integer from 0 to 2^53 - 1.'),
  invalid_timestamp: never(400, 'timestamp is not RFC 3339 with offset and seconds, or is not a real date.'),
  timestamp_out_of_range: never(400, 'timestamp is before 1970 or more than one day ahead.'),
  reserved_property: never(400, 'A property uses a key that is reserved.'),
  unknown_message_type: never(400, 'A message has a type that this service does not know.'),
  merges_strangers: never(400, 'The identity is a word under which strangers would be merged.'),
  too_many_properties: never(400, 'An object has more properties than the contract allows.'),
  too_many_records: never(400, 'A bulk request has more elements than the contract allows.'),
  unknown_app_id: never(400, 'No environment has this app_id.'),
  invalid_parameter: never(400, 'A parameter of the query has a value that it cannot have.'),
  reference_taken: never(409, 'The reference names an earlier request with other users; nothing is deleted.'),
  still_pending: later(409, 'The deletion is not complete yet; ask again when it is.'),
  no_longer_kept: never(410, 'What was asked for was kept for a limited time, which is over.'),
  too_large_for_limit: never(400, 'The bulk request alone exceeds its rate limit and could never fit.'),
  unauthorized: never(401, 'The credentials are invalid, or do not give access to this.'),
  origin_not_allowed: never(403, 'The environment does not take messages from this origin.'),
  forbidden: never(403, 'The role of the person who is signed in does not allow this.'),
  write_key_required: never(
    403,
    'The environment has no write key, and this is answered only to callers who have one.',
  ),
  not_possible: never(400, 'The administration refuses the request; the message says why.'),

  // Not now.
  not_complete: later(409, 'The export is pending: ask for its data when its status is complete.'),
  body_too_slow: later(408, 'The body did not arrive in time; nothing was stored.'),
  rate_limited: later(429, 'The rate limit has no room for this request; nothing was stored.'),
  overloaded: later(503, 'The service cannot take the request now; nothing was stored.'),
  unknown: later(503, 'It is not known whether the request was stored; repeat it with the same keys.'),
  internal_error: later(
    500,
    'An error of the service itself. It is not known whether the request was stored; repeat it with the same keys.',
  ),
} as const satisfies Record<string, Outcome>;

/** Refusals that are about the caller or about how the request was sent, not about a record. */
export const aboutSending: ReadonlySet<string> = new Set<OutcomeCode>([
  'invalid_framing',
  'invalid_content_type',
  'unsupported_encoding',
  'invalid_encoding',
  'headers_too_large',
  'not_found',
  'method_not_allowed',
  'unknown_app_id',
  'unauthorized',
]);

/** Why one record, or one request, is refused: what (`code`), where (`field`, a path) and in words. */
export type Rejection = {
  readonly code: OutcomeCode;
  readonly message: string;
  /** Path of the field within its record, such as `properties.color`; absent if it is the record itself. */
  readonly field?: string;
};

export function rejection(
  code: OutcomeCode,
  message: string = outcomes[code].meaning,
  field?: string,
): Rejection {
  return field === undefined ? { code, message } : { code, message, field };
}

/**
 * Whether the content of an answer 200 acknowledges records that were sent to `/api/track`, `/api/add_user_properties` or
 * `/api/v1/identify`: it has no field, or says how many were accepted. So our libraries can tell that it is not the answer of a captive
 * portal or a maintenance page.
 */
export function isAcknowledgement(body: object | undefined): boolean {
  if (body === undefined || Array.isArray(body)) return false;
  return 'accepted' in body ? typeof body.accepted === 'number' : Object.keys(body).length === 0;
}

function never(status: number, meaning: string): Outcome {
  return { status, retry: 'never', meaning };
}

function later(status: number, meaning: string): Outcome {
  return { status, retry: 'later', meaning };
}
