// The names of everything that the library keeps in storage, all beginning with `sluice:` and the app.

/** Keys of one app. An app_id is any text, so it is escaped; `:` does not occur in the escaped form. */
export function keysOf(appId: string) {
  const app = `sluice:${encodeURIComponent(appId)}:`;
  return {
    app,
    /** The current user. */
    user: `${app}user`,
    /** The current session and when it was last used. */
    session: `${app}session`,
    /** Whether the user opted out or in. */
    consent: `${app}consent`,
    /** The global event properties, where there is no cookie. */
    properties: `${app}properties`,
    /** The address for messages of this app, needed after another app was started. */
    url: `${app}url`,
    /** Until when nothing is sent, and why. */
    backoff: `${app}backoff`,
    /** Messages that wait; one key each. */
    queue: `${app}q:`,
    /** Messages that are being sent; one key per request. */
    holds: `${app}h:`,
    /** The turn of sending. */
    turn: `${app}turn`,
  };
}

export type Keys = ReturnType<typeof keysOf>;

/** The apps that have messages waiting in storage, by its keys. */
export function appsWithMessages(keys: readonly string[]): string[] {
  const apps = new Set<string>();
  let last = '';
  for (const key of keys) {
    // Thousands of keys of one app come in a row.
    if (last !== '' && key.startsWith(last)) continue;
    const [found = '', escaped] = /^sluice:([^:]*):q:/.exec(key) ?? [];
    last = found;
    try {
      if (escaped !== undefined) apps.add(decodeURIComponent(escaped));
    } catch {
      // Not a key of this library.
    }
  }
  return [...apps];
}
