// The OpenAPI part of a check that several endpoints share: what the check needs from a request, and the reasons for which it refuses. It
// stands beside the code of the check.

import type { OutcomeCode } from '../../contract/outcomes.js';

export type Guard = {
  readonly security?: readonly object[];
  readonly parameters?: readonly object[];
  readonly refuses: readonly OutcomeCode[];
  /** By status: schemas to use instead of Error, and headers besides those that the status always has. */
  readonly schemas?: Readonly<Record<number, object>>;
  readonly headers?: Readonly<Record<number, object>>;
};

/** A reference to a schema of the document. */
export function ref(name: string): { $ref: string } {
  return { $ref: `#/components/schemas/${name}` };
}
