// Time zones of local times: UTC, a fixed offset, or a name in the IANA database such as Europe/Berlin. Pure.

export type Zone = {
  readonly name: string;
  /** The milliseconds since 1970 of a local time, which is passed as if it were UTC. */
  readonly instantOf: (localMs: number) => number;
};

const dayMs = 86_400_000;
/** Zones change their offsets only at multiples of a quarter of an hour. */
const steadyMs = 900_000;

export const utc: Zone = { name: 'UTC', instantOf: (localMs) => localMs };

/** Reads UTC, Z, +hh:mm or the name of a zone; undefined for anything else. */
export function readZone(text: string): Zone | undefined {
  if (/^(utc|z)$/i.test(text)) return utc;
  const offsetMs = readOffset(text);
  if (offsetMs !== undefined) return { name: text, instantOf: (localMs) => localMs - offsetMs };
  return /^[A-Za-z]+\//.test(text) ? namedZone(text) : undefined;
}

/** How many milliseconds +hh:mm is ahead of UTC; undefined for other text. */
export function readOffset(text: string): number | undefined {
  const [, sign, hours, minutes] = /^([+-])(\d\d):?(\d\d)$/.exec(text) ?? [];
  if (sign === undefined || Number(minutes) > 59) return undefined;
  const ms = (Number(hours) * 60 + Number(minutes)) * 60_000;
  return sign === '-' ? -ms : ms;
}

function namedZone(timeZone: string): Zone | undefined {
  let format: Intl.DateTimeFormat;
  try {
    const numeric = 'numeric';
    format = new Intl.DateTimeFormat('en-US', {
      ...{ timeZone, calendar: 'gregory', era: 'short', hourCycle: 'h23' },
      ...{ year: numeric, month: numeric, day: numeric, hour: numeric, minute: numeric, second: numeric },
    });
  } catch {
    return undefined;
  }
  /** How many ms the zone is ahead of UTC at an instant. */
  const aheadMs = (ms: number): number => {
    const parts = Object.fromEntries(
      format.formatToParts(ms).map(({ type, value }) => [type, Number(value)]),
    );
    const { year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0 } = parts;
    return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / 1000) * 1000;
  };
  const known = new Map<number, number>();
  return {
    name: timeZone,
    instantOf(localMs) {
      const part = Math.floor(localMs / steadyMs);
      let ahead = known.get(part);
      if (ahead === undefined) {
        ahead = aheadAtLocal(localMs, aheadMs);
        known.set(part, ahead);
      }
      return localMs - ahead;
    },
  };
}

/**
 * How many ms the zone is ahead of UTC at a local time. If that time occurs twice, the first one counts; a time that is skipped moves after
 * the change.
 */
function aheadAtLocal(localMs: number, aheadMs: (ms: number) => number): number {
  const before = aheadMs(localMs - dayMs);
  const after = aheadMs(localMs + dayMs);
  const found = [before, after].filter((ahead) => aheadMs(localMs - ahead) === ahead);
  return found.length === 0 ? before : Math.max(...found);
}
