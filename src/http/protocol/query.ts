// The parameters of a query. URLSearchParams takes bytes that are not UTF-8 for other text, so a name in another encoding would be
// looked for under a name that does not exist, and the answer would be wrong instead of refused.

import { type Rejection, rejection } from '../../contract/outcomes.js';

/** The parameters of a query, or the reason to refuse it. */
export function readParameters(query: string): URLSearchParams | Rejection {
  return isText(query)
    ? new URLSearchParams(query)
    : rejection('invalid_parameter', 'The query is not UTF-8 text in percent-encoding.');
}

function isText(query: string): boolean {
  // Bytes that came as they are and were no UTF-8.
  if (query.includes('\ufffd')) return false;
  try {
    decodeURIComponent(query);
    return true;
  } catch {
    return false;
  }
}
