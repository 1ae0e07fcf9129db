// The table of everything that a request can come to, in one place: code, HTTP status, meaning, and whether
// a caller should send the same request again. Returned as values, never thrown. The documentation, the
// metrics' labels and the tests read this table. Imports nothing, since the client library reads it too.

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
  unsupported_encoding: never(415, 'Content-Encoding must be absent, identity or gzip.'),
  invalid_encoding: never(400, 'The body is not what its Content-Encoding says.'),
  body_too_large: never(413, 'The body, after inflating, is larger than this endpoint takes.'),
  invalid_json: never(400, 'The body is not one JSON document in UTF-8.'),
  too_deep: never(400, 'The document is nested too deeply.'),
  not_found: never(404, 'There is no such resource.'),
  method_not_allowed: never(405, 'This path takes another method.'),

  // The fields of a record.
  missing_field: never(400, 'A required field is absent.'),
  invalid_type: never(400, 'A field has another type than the contract says.'),
  empty: never(400, 'A field that needs at least one character or element is empty.'),
  too_long: never(
    400,
    'A string has more characters than its field takes, or what is made of the request has too many bytes or digits.',
  ),
  invalid_text: never(400, 'A string holds a lone surrogate and is no Unicode text.'),
  missing_user: never(400, 'Neither identity nor user_id is given; exactly one is needed.'),
  ambiguous_user: never(400, 'Both identity and user_id are given; exactly one is allowed.'),
  invalid_user_id: never(400, 'user_id is not the plain decimal form of an integer from 0 to 2^53 - 1.'),
  invalid_timestamp: never(400, 'timestamp is not RFC 3339 with offset and seconds, or no real date.'),
  timestamp_out_of_range: never(400, 'timestamp is before 1970 or more than one day ahead.'),
  reserved_property: never(400, 'A property uses a key that is reserved.'),
  unknown_message_type: never(400, 'A message has a type that this service does not know.'),
  merges_strangers: never(400, 'The identity is a word under which strangers would be merged.'),
  too_many_properties: never(400, 'An object has more properties than the contract takes.'),
  too_many_records: never(400, 'A bulk request has more elements than the contract takes.'),
  unknown_app_id: never(400, 'No environment has this app_id.'),
  too_large_for_limit: never(400, 'The bulk request alone exceeds its rate limit and could never fit.'),
  unauthorized: never(401, 'The credentials are invalid, or do not open this.'),
  not_possible: never(400, 'The administration refuses the request; the message says why.'),

  // Not now.
  rate_limited: later(429, 'The rate limit has no room for this request; nothing was stored.'),
  overloaded: later(503, 'The service cannot take the request now; nothing was stored.'),
  unknown: later(503, 'It is not known whether the request was stored; repeat it with the same keys.'),
  internal_error: later(
    500,
    'An error of the service itself. It is not known whether the request was stored; repeat it with the same keys.',
  ),
} as const satisfies Record<string, Outcome>;

/** Why one record, or one request, is refused: what (`code`), where (`field`, a path) and in words. */
export type Rejection = {
  readonly code: OutcomeCode;
  readonly message: string;
  /** Path of the field within its record, such as `properties.color`; absent when it is the whole. */
  readonly field?: string;
};

export function rejection(code: OutcomeCode, message: string, field?: string): Rejection {
  return field === undefined ? { code, message } : { code, message, field };
}

function never(status: number, meaning: string): Outcome {
  return { status, retry: 'never', meaning };
}

function later(status: number, meaning: string): Outcome {
  return { status, retry: 'later', meaning };
}
