// What goes over the wire to `POST /api/collect`, and what comes back. Types only.

import type { OutcomeCode } from '../../../contract/outcomes.js';

/** The value of a property, as the contract accepts it. */
export type PropertyValue = string | number;
/** The values that calls may pass. Booleans become strings, lists are joined with `||`, and null and undefined are left out. */
export type PropertyInput = PropertyValue | boolean | null | undefined | readonly (PropertyValue | boolean)[];
/** Properties of a type `T` without an index signature, such as an interface. */
export type PropertiesInput<T> = object & { readonly [Key in keyof T]: PropertyInput };
export type Properties = { readonly [key: string]: PropertyValue };

type Common = {
  /** Unique: the server does not store a second message with the same id. */
  readonly id: string;
  /** The user when the call was made: an integer from 0 to 2^53 - 1, as a string. */
  readonly user_id: string;
  readonly session_id: string;
  /** When the call was made, by the client's clock: RFC 3339 with milliseconds. */
  readonly time: string;
};

export type EventMessage = Common & {
  readonly type: 'event';
  /** Present if the user was identified when the call was made. */
  readonly identity?: string | undefined;
  readonly event: string;
  readonly properties: Properties;
  /** Recorded by the library itself: a page view or screen view. */
  readonly autocaptured?: true | undefined;
};

export type IdentifyMessage = Common & { readonly type: 'identify'; readonly identity: string };

export type UserPropertiesMessage = Common & {
  readonly type: 'user_properties';
  readonly identity?: string | undefined;
  readonly properties: Properties;
};

export type Message = EventMessage | IdentifyMessage | UserPropertiesMessage;

export type CollectRequest = {
  readonly app_id: string;
  /** When the request was made, by the client's clock: RFC 3339 with milliseconds. */
  readonly sent_at: string;
  /** While paired with the Event Visualizer. */
  readonly pairing?: string;
  readonly messages: readonly Message[];
};

/** The server's answer to one message. */
export type MessageAnswer =
  | { readonly id?: string; readonly status: 'stored' | 'repeat' }
  | {
      readonly id?: string;
      readonly status: 'limited';
      readonly code: 'rate_limited';
      /** In whole seconds. */
      readonly retry_after: number;
    }
  | {
      readonly id?: string;
      readonly status: 'rejected';
      readonly code: OutcomeCode;
      readonly field?: string;
      readonly message: string;
    };

export type CollectAnswer = {
  /** One for each message, in their order. */
  readonly messages: readonly MessageAnswer[];
  /** The Event Visualizer no longer knows the pairing. */
  readonly pairing?: 'ended';
};
