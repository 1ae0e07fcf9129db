// The endpoints that producers send to: their paths, the bodies of their requests, and which records an answer refuses.

/**
 * One record as it is sent: an event, unless `kind` says otherwise. `properties.marker` is unique within the environment.
 * An identification has no properties, so only the history has its marker.
 */
export type SentEvent = {
  readonly kind?: 'user_properties' | 'identify';
  readonly event: string;
  readonly identity?: string;
  readonly user_id?: string;
  readonly session_id?: string;
  readonly timestamp?: string;
  readonly idempotency_key?: string;
  readonly properties: { readonly marker: string } & Record<string, string | number | (string | number)[]>;
};

/** `track`, `user_properties` and `identify` take one record per request, the others many; `segment` takes events of an identity. */
export type Endpoint = 'track' | 'bulk' | 'user_properties' | 'identify' | 'collect' | 'segment';

export const paths: Readonly<Record<Endpoint, string>> = {
  track: '/api/track',
  bulk: '/api/track',
  user_properties: '/api/add_user_properties',
  identify: '/api/v1/identify',
  collect: '/api/collect',
  segment: '/v1/batch',
};

export function bodyOf(endpoint: Endpoint, appId: string, events: readonly SentEvent[]): object {
  switch (endpoint) {
    case 'bulk':
      return { app_id: appId, events: events.map(withoutKind) };
    case 'collect':
      return { app_id: appId, sent_at: new Date().toISOString(), messages: events.map(messageOf) };
    case 'segment':
      return { writeKey: appId, sentAt: new Date().toISOString(), batch: events.map(segmentMessageOf) };
    case 'track':
      return { app_id: appId, ...withoutKind(events[0] as SentEvent) };
    case 'user_properties': {
      const { identity, user_id, properties } = events[0] as SentEvent;
      return { app_id: appId, identity, user_id, properties };
    }
    case 'identify': {
      const { identity, user_id } = events[0] as SentEvent;
      return { app_id: appId, user_id, identity };
    }
  }
}

/** The key of a record at an endpoint: the messages of client libraries always have one. */
export function keyAt(endpoint: Endpoint, event: SentEvent): string | undefined {
  if (endpoint === 'collect' || endpoint === 'segment')
    return event.idempotency_key ?? event.properties.marker;
  return endpoint === 'track' || endpoint === 'bulk' ? event.idempotency_key : undefined;
}

function withoutKind({ kind: _, ...event }: SentEvent): object {
  return event;
}

function messageOf(event: SentEvent): object {
  const { kind = 'event', identity, user_id = '1', session_id, timestamp, properties } = event;
  return {
    type: kind,
    id: keyAt('collect', event),
    user_id,
    ...(identity === undefined ? {} : { identity }),
    ...(session_id === undefined ? {} : { session_id }),
    ...(timestamp === undefined ? {} : { time: timestamp }),
    ...(kind === 'event' ? { event: event.event } : {}),
    ...(kind === 'identify' ? {} : { properties }),
  };
}

function segmentMessageOf(event: SentEvent): object {
  const { event: name, identity, timestamp, properties } = event;
  return {
    type: 'track',
    messageId: keyAt('segment', event),
    event: name,
    userId: identity,
    timestamp,
    properties,
  };
}

type AnswerBody = { errors?: { index: number }[]; messages?: { status: string }[] };

/** The records that an answer with status 200 refuses: invalid ones, and those above a limit. */
export function refusedIndexesOf(body: object): number[] {
  const { errors = [], messages = [] } = body as AnswerBody;
  const limited = messages.flatMap(({ status }, index) =>
    status === 'rejected' || status === 'limited' ? [index] : [],
  );
  return [...errors.map(({ index }) => index), ...limited];
}
