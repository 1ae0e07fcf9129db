// The global event properties of an app: stored as one text, in a cookie on the web, and attached to every event. The text is read at each
// event, so tabs share it. Cookies cannot be locked: if two tabs write at once, one may overwrite what the other has just added. So a tab
// that adds properties checks for a while whether they are still there, and adds them again if not. Each removal begins a new generation,
// into which nothing from an older one is added again.

import type { Clock, TextStore } from './adapters.js';
import { clientLimits } from './limits.js';
import type { Properties, PropertyValue } from './messages.js';
import { checkProperties, define, eventRules, hasOwn, type Warn } from './sanitize.js';

type Added = { readonly value: PropertyValue; readonly former: PropertyValue | undefined };

export function createEventProperties(
  store: TextStore,
  appId: string,
  /** For the checks above; undefined if no other page shares the store. */
  clock: Clock | undefined,
  warn: Warn,
) {
  let knownText = '';
  let known: Properties = {};
  /** What this page added recently, in this generation. */
  const added = new Map<string, Added>();
  let addedIn = 0;
  let checksLeft = 0;

  function current(): Properties {
    const text = store.read(appId) ?? '';
    if (text !== knownText) {
      knownText = text;
      // Checked again, since anybody can write cookies, and the service would refuse every event because of one bad property.
      known = checkProperties(decodeProperties(text), eventRules, () => {});
    }
    return known;
  }

  function write(properties: Properties, generation: number): boolean {
    const pairs = encodeProperties(properties);
    return store.write(appId, generation === 0 ? pairs : `~${generation}${pairs && '&'}${pairs}`);
  }

  /** Begins a generation. What another tab is adding to the former one at that moment is lost too. */
  function begin(properties: Properties): void {
    write(properties, clock === undefined ? 0 : generationOf(knownText) + 1);
    watch({}, {});
  }

  function put(properties: Properties): boolean {
    const before = current();
    let refused = false;
    const all = checkProperties({ ...before, ...properties }, eventRules, () => {
      refused = true;
    });
    return !refused && write(all, generationOf(knownText));
  }

  function watch(properties: Properties, before: Properties): void {
    if (clock === undefined) return;
    forgetFormerGenerations();
    for (const key of Object.keys(properties)) {
      added.set(key, {
        value: properties[key] as PropertyValue,
        former: hasOwn(before, key) ? before[key] : undefined,
      });
    }
    if (checksLeft === 0) clock.setTimer(clientLimits.propertiesCheckMs, addLostAgain);
    checksLeft = clientLimits.propertiesChecks;
  }

  function forgetFormerGenerations(): void {
    const generation = generationOf(knownText);
    if (generation !== addedIn) added.clear();
    addedIn = generation;
  }

  /** Adds properties again that another tab has overwritten. */
  function addLostAgain(): void {
    const now = current();
    forgetFormerGenerations();
    const lost: Record<string, PropertyValue> = {};
    added.forEach(({ value, former }, key) => {
      const there = hasOwn(now, key) ? now[key] : undefined;
      if (there !== value && there === former) define(lost, key, value);
    });
    if (Object.keys(lost).length > 0) put(lost);
    checksLeft--;
    if (checksLeft > 0) {
      clock?.setTimer(clientLimits.propertiesCheckMs, addLostAgain);
      return;
    }
    added.clear();
    if (/^~\d+$/.test(knownText)) store.write(appId, '');
  }

  return {
    current,
    /** Adds checked properties. If they do not fit, changes nothing and warns. */
    add(properties: Properties): void {
      const before = current();
      if (put(properties)) watch(properties, before);
      else warn('addEventProperties is refused as a whole: it is too large.');
    },
    remove(key: string): void {
      const before = current();
      if (!hasOwn(before, key)) return;
      const { [key]: _, ...rest } = before;
      begin(rest);
    },
    clear(): void {
      if (Object.keys(current()).length > 0) begin({});
    },
  };
}

/** The generation in a text: a counter of removals. */
function generationOf(text: string): number {
  return Number(/^~(\d{1,9})(?:&|$)/.exec(text)?.[1] ?? 0);
}

/** Properties as `key=text&key:number`, escaped for a cookie and still short: in JSON, each quote and brace would take three bytes. */
export function encodeProperties(properties: Properties): string {
  return Object.keys(properties)
    .map((key) => {
      const value = properties[key] as PropertyValue;
      return `${encodeURIComponent(key)}${typeof value === 'number' ? ':' : '='}${encodeURIComponent(value)}`;
    })
    .join('&');
}

/** The properties in such a text, without damaged parts. */
export function decodeProperties(text: string): Record<string, PropertyValue> {
  const properties: Record<string, PropertyValue> = {};
  for (const pair of text.split('&')) {
    const [, key, kind, value] = /^([^=:]*)([=:])([^=:]*)$/.exec(pair) ?? [];
    if (key === undefined || value === undefined) continue;
    try {
      const plain = decodeURIComponent(value);
      define(properties, decodeURIComponent(key), kind === ':' ? Number(plain) : plain);
    } catch {
      // This property is damaged; the others are still used.
    }
  }
  return properties;
}
