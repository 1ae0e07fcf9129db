// Times in the zone that a reader has chosen.

export type Times = {
  readonly zone: string;
  /** Shows `2026-03-01T12:30:00.250Z` as `2026-03-01 13:30:00`. Other texts stay as they are. */
  readonly shown: (iso: string) => string;
};

/** Undefined if there is no such zone. */
export function timesIn(zone: string): Times | undefined {
  let form: Intl.DateTimeFormat;
  try {
    // Sweden writes the year first.
    form = new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium', timeZone: zone });
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
  return {
    zone: form.resolvedOptions().timeZone,
    shown: (iso) => {
      const ms = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/.test(iso) ? Date.parse(iso) : Number.NaN;
      return Number.isNaN(ms) ? iso : form.format(ms);
    },
  };
}
