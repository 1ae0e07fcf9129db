// A rebuild of a shard's index of keys, as Redis has it: an administrator asks for it, the workers carry it out step by step.

/** Of the segments up to `to`, those up to `doneTo` have their keys in the index again, if its generation is still this one. */
export type Rebuild = {
  /** Of this request for a rebuild. */
  readonly id: string;
  /** Empty until a worker has begun. */
  readonly generation: string;
  readonly doneTo: string;
  readonly to: string;
};

export function rebuildText({ id, generation, doneTo, to }: Rebuild): string {
  return JSON.stringify({ id, generation, doneTo, to });
}

export function rebuildOf(text: string | null | undefined): Rebuild | undefined {
  return text == null ? undefined : (JSON.parse(text) as Rebuild);
}
