// The global event properties of an app: kept as one text, in a cookie on the web, and attached to every event.
// The text is the truth, read at each event, so that tabs share them.

import type { PropertyStore } from './adapters.js';
import type { Properties, PropertyValue } from './messages.js';
import { checkProperties, eventRules, hasOwn, type Warn } from './sanitize.js';

export type EventProperties = {
  current(): Properties;
  /** Adds checked properties, or leaves all as it was, with a warning, when they do not fit. */
  add(properties: Properties): void;
  remove(key: string): void;
  clear(): void;
};

export function createEventProperties(store: PropertyStore, appId: string, warn: Warn): EventProperties {
  let knownText: string | undefined;
  let known: Properties = {};

  function current(): Properties {
    const text = store.read(appId);
    if (text !== knownText) {
      knownText = text;
      // Checked again, since others can write cookies, and one bad property would have every event refused.
      known = text === undefined ? {} : checkProperties(decodeProperties(text), eventRules, () => {});
    }
    return known;
  }

  return {
    current,
    add(properties) {
      let refused = false;
      const all = checkProperties({ ...current(), ...properties }, eventRules, () => {
        refused = true;
      });
      if (refused || !store.write(appId, encodeProperties(all))) {
        warn('addEventProperties is refused as a whole: all global event properties together are too large.');
      }
    },
    remove(key) {
      const before = current();
      if (!hasOwn(before, key)) return;
      const { [key]: _, ...rest } = before;
      store.write(appId, encodeProperties(rest));
    },
    clear() {
      store.write(appId, '');
    },
  };
}

/**
 * Properties as `key=text&key:number`, escaped so that a cookie can hold them and little longer than they are:
 * in JSON each quote and brace would take three bytes.
 */
export function encodeProperties(properties: Properties): string {
  return Object.keys(properties)
    .map((key) => {
      const value = properties[key] as PropertyValue;
      return `${encodeURIComponent(key)}${typeof value === 'number' ? ':' : '='}${encodeURIComponent(value)}`;
    })
    .join('&');
}

/** The properties of such a text; what is damaged in it is left out. */
export function decodeProperties(text: string): Record<string, PropertyValue> {
  const properties: Record<string, PropertyValue> = {};
  for (const pair of text.split('&')) {
    const [, key, kind, value] = /^([^=:]*)([=:])([^=:]*)$/.exec(pair) ?? [];
    if (key === undefined || value === undefined) continue;
    try {
      const plain = decodeURIComponent(value);
      Object.defineProperty(properties, decodeURIComponent(key), {
        value: kind === ':' ? Number(plain) : plain,
        enumerable: true,
        configurable: true,
        writable: true,
      });
    } catch {
      // Damaged by somebody else; the other properties still count.
    }
  }
  return properties;
}
