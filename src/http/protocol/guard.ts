// What stands in front of endpoints, as the OpenAPI document has it. A guard that several endpoints share says itself what it asks for
// and for which reasons it refuses, beside the code that does.

import type { OutcomeCode } from '../../contract/outcomes.js';

export type Guard = {
  readonly security?: readonly object[];
  readonly parameters?: readonly object[];
  readonly refuses: readonly OutcomeCode[];
  /** Schemas to use instead of Error, and headers besides the ones that a status always has, by status. */
  readonly schemas?: Readonly<Record<number, object>>;
  readonly headers?: Readonly<Record<number, object>>;
};

/** A reference to a schema of the document. */
export function ref(name: string): { $ref: string } {
  return { $ref: `#/components/schemas/${name}` };
}
