// What the operations under an access token share in the OpenAPI document.

import type { OutcomeCode } from '../../contract/outcomes.js';
import { bodyCodes, challengeHeader, ref, refusals } from './document.js';

/** The `security` of these operations. */
export const byAccessToken = [{ accessToken: [] }];

/** The answers to callers without a valid token, and without room in a limit or in the service. */
export function refusalsToCallers(codes: readonly OutcomeCode[] = []) {
  return refusals(['unauthorized', ...codes, 'rate_limited', 'overloaded'], {
    schemas: { 401: ref('Unauthorized') },
    headers: { 401: challengeHeader },
  });
}

/** What can be wrong with one user that a request names. */
export const userCodes = [
  'empty',
  'too_long',
  'invalid_type',
  'ambiguous_user',
  'invalid_user_id',
] as const satisfies OutcomeCode[];

/** What can be wrong with a body that lists users. */
export const userListCodes = [
  ...bodyCodes,
  'missing_field',
  ...userCodes,
  'invalid_text',
  'missing_user',
  'too_many_records',
] as const satisfies OutcomeCode[];

/** The parameter of lists that come in pages. */
export const cursorParameter = {
  name: 'cursor',
  in: 'query',
  description: 'The cursor of an answer: the page after it.',
  schema: { type: 'string' },
};
