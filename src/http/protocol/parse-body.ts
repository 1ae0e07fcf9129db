// From the body of a request to its document: a large body is parsed in slices.

import { receiving } from '../../contract/limits.js';
import type { Rejection } from '../../contract/outcomes.js';
import { type Document, parseDocument } from '../../parsing/document.js';
import { type RecordList, readLargeDocument } from '../../parsing/large-document.js';
import type { PropertyFields } from '../../parsing/numerals.js';
import { bodyBuffers } from '../../spare-buffers.js';
import type { Exchange } from './exchange.js';
import { withResult } from './slices.js';

export type DocumentForm = {
  /** How many records a request may have, and in which field. */
  readonly list: RecordList | undefined;
  /** The fields that contain properties, if there are others than `properties`. Numbers in them keep all their digits. */
  readonly propertyFields?: PropertyFields;
};

/** Continues with the document of a body, or why it has none. `owned`: see `TakeBody`. */
export function parseBody(
  exchange: Exchange,
  body: Buffer,
  owned: boolean,
  { list, propertyFields }: DocumentForm,
  proceed: (document: Document | Rejection) => void,
): void {
  if (body.length <= receiving.largeBytesMin) return proceed(parseDocument(body, propertyFields));
  const kept = owned ? body : Buffer.from(body);
  withResult(exchange, true, readLargeDocument(kept, list, propertyFields), (document) => {
    bodyBuffers.give(kept);
    proceed(document);
  });
}
