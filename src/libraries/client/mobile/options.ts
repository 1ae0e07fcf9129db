// The configuration of every mobile surface.

import type { RuntimeAdapters } from './adapters.js';
import { platformRandomBytes, systemClock, warnInConsole } from './runtime.js';

export type MobileOptions = RuntimeAdapters & {
  /** The address of the Sluice, in the data centre to send to: `https://events.example.com`. */
  readonly baseUrl: string;
  /** Record nothing until `optIn` is called, unless the user has already chosen. Default: false. */
  readonly optedOut?: boolean;
  /** Identities to accept although they are words that many users might share. */
  readonly allowIdentities?: readonly string[];
  /** Whether each screen that is shown becomes an event `Screen View`. Default: true. */
  readonly screenViews?: boolean;
};

/** The options of a surface, checked and completed. */
export type ReadOptions = Exclude<ReturnType<typeof readOptions>, { readonly fault: string }>;

/** Reads options of any type. Returns why they cannot be used, and how to report it, if they cannot. */
export function readOptions(given: MobileOptions) {
  try {
    const options = Object(given) as Partial<MobileOptions>;
    const { baseUrl, optedOut, allowIdentities, screenViews } = options;
    const warn = options.warn ?? warnInConsole;
    const randomBytes = options.randomBytes ?? platformRandomBytes();
    if (typeof baseUrl !== 'string') return { warn, fault: 'baseUrl is missing' };
    if (!/^https?:\/\/[^\s?#]+$/i.test(baseUrl))
      return { warn, fault: 'baseUrl must be an http or https address' };
    if (randomBytes === undefined) {
      return { warn, fault: 'there is no crypto.getRandomValues; add it, or give randomBytes' };
    }
    return {
      warn,
      clock: options.clock ?? systemClock,
      randomBytes,
      baseUrl: baseUrl.replace(/\/+$/, ''),
      optedOut: optedOut === true,
      allowIdentities: Array.isArray(allowIdentities) ? allowIdentities : [],
      screenViews: screenViews !== false,
    };
  } catch {
    return { warn: warnInConsole, fault: 'its options cannot be read' };
  }
}
