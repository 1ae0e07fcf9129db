// A rebuild of a shard's index of keys, as Redis has it: an administrator asks for it, the workers carry it out step by step.

/** A rebuild up to the segment `to`. If the index still has this generation, it has the keys of all segments up to `doneTo` again. */
export type Rebuild = {
  /** Identifies the request for the rebuild. */
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
