// Segment's protocol as this service accepts it: the types of messages, and schemas that the OpenAPI document shows. What
// libraries send varies, so requests are read field by field (`ingest/segment-message.ts`) and not validated with these.

import { counts, lengths } from './limits.js';
import { either, listOf, object, optional, Type, text } from './typebox.js';

export const segmentTypes = ['track', 'identify', 'page', 'screen', 'alias', 'group'] as const;
export type SegmentType = (typeof segmentTypes)[number];

const said = (description: string, example?: string) => optional(text(description, example));
const nested = (description: string) => optional(object(description, {}));

export const segmentMessageSchema = object({
  type: optional(either(segmentTypes, 'Only needed in a batch; otherwise the path says it.')),
  messageId: optional(
    text(
      'The idempotency key: a later message with the same messageId changes nothing and is answered like the first.',
      { maxLength: lengths.idempotencyKeyMax, examples: ['ajs-next-1772368200250-3f0c3a52'] },
    ),
  ),
  userId: optional(
    text('The user, by the id of your own database: the identity.', {
      maxLength: lengths.identityMax,
      examples: ['ada@example.com'],
    }),
  ),
  anonymousId: said(
    'The device, by any text. It maps to a user_id by a stable hash. Used when there is no userId; an identify with both merges this user into the user of the userId.',
    '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11',
  ),
  event: said('track: the name of the event.', 'Order Completed'),
  name: said(
    'page, screen: its name. Stored as the property name of a page, screen_name of a screen.',
    'Home',
  ),
  category: said('page, screen: stored as the property category.'),
  properties: nested('track, page, screen: nested objects are flattened with dots.'),
  traits: nested('identify: user properties. group: user properties whose keys begin with group_.'),
  groupId: said('group: stored as the user property group_id.', 'acme'),
  previousId: said(
    'alias: an anonymousId, whose user is merged into the user of the userId.',
    '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11',
  ),
  context: nested(
    'Stored in events as properties such as context.page.url, without ip and traits. Its sessionId becomes the session_id.',
  ),
  timestamp: said(
    "When it happened, by the sender's clock. Corrected by the difference between sentAt and the service's clock. Default: the time of acceptance.",
    '2026-03-01T12:30:00.250Z',
  ),
  sentAt: said("When it was sent, by the sender's clock.", '2026-03-01T12:30:05.000Z'),
  writeKey: said('The app_id, or a write key, if there is no Authorization header.', '1000000001'),
});

/** Many messages. */
export const segmentBatchSchema = object({
  batch: listOf(Type.Unknown(), 'Messages, each with its type.', {
    minItems: 1,
    maxItems: counts.segmentMessagesMax,
  }),
  sentAt: segmentMessageSchema.properties.sentAt,
  writeKey: segmentMessageSchema.properties.writeKey,
});
