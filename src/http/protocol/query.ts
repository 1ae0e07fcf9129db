// The parameters of a query. URLSearchParams replaces bytes that are not UTF-8. A name in another encoding would then be looked up as a
// name that does not exist: a wrong answer instead of a refusal.

import { type Rejection, rejection } from '../../contract/outcomes.js';

export function readParameters(query: string): URLSearchParams | Rejection {
  return isText(query)
    ? new URLSearchParams(query)
    : rejection('invalid_parameter', 'The query must be percent-encoded UTF-8.');
}

function isText(query: string): boolean {
  // Stands for unescaped bytes that are not UTF-8.
  if (query.includes('\ufffd')) return false;
  try {
    decodeURIComponent(query);
    return true;
  } catch {
    return false;
  }
}
