// The simplest possible model of one environment: a union-find over ids and a log of properties say what users, events and properties
// must be after a sequence of requests.

export type EventOf = {
  /** Unique in its environment. */
  readonly event: string;
  readonly user: { readonly identity: string } | { readonly user_id: string };
  readonly idempotency_key?: string;
};

export type PropertiesOf = {
  readonly identity: string;
  readonly properties: Readonly<Record<string, string | number>>;
};

export type ModelUser = {
  readonly identity: string;
  readonly user_ids: readonly string[];
  readonly email: string;
  readonly properties: Readonly<Record<string, string>>;
};

export type ModelEvent = {
  readonly event: string;
  readonly identity: string;
  readonly user_id: string | null;
  readonly user_properties: Readonly<Record<string, string>>;
};

export class IdentityModel {
  readonly #users = new UnionFind();
  readonly #identities = new Map<string, string>();
  readonly #events: EventOf[] = [];
  readonly #keys = new Set<string>();
  readonly #properties: PropertiesOf[] = [];

  track(event: EventOf): void {
    if (event.idempotency_key !== undefined) {
      if (this.#keys.has(event.idempotency_key)) return;
      this.#keys.add(event.idempotency_key);
    }
    this.#events.push(event);
    this.#users.add('identity' in event.user ? named(event.user.identity) : numbered(event.user.user_id));
  }

  addProperties(call: PropertiesOf): void {
    this.#properties.push(call);
    this.#users.add(named(call.identity));
  }

  identify(userId: string, identity: string): void {
    if (this.#identities.has(userId)) return;
    this.#identities.set(userId, identity);
    this.#users.union(numbered(userId), named(identity));
  }

  /** The identity of every identified user_id. */
  identities(): Record<string, string> {
    return Object.fromEntries(this.#identities);
  }

  /** The properties that calls set for each identity, not those of its whole user. */
  propertiesByIdentity(): Record<string, Record<string, string>> {
    const found: Record<string, Record<string, string>> = {};
    for (const { identity, properties } of this.#properties) {
      found[identity] = { ...found[identity], ...asText(properties) };
    }
    return found;
  }

  users(): ModelUser[] {
    return this.#users.sets().map((ids) => {
      const properties = this.#propertiesOf(ids);
      return {
        identity: identityOf(ids),
        user_ids: ids
          .filter((id) => id.startsWith('#'))
          .map((id) => id.slice(1))
          .sort(asNumbers),
        email: properties.email ?? '',
        properties,
      };
    });
  }

  events(): ModelEvent[] {
    return this.#events.map(({ event, user }) => {
      const ids = this.#users.setOf('identity' in user ? named(user.identity) : numbered(user.user_id));
      return {
        event,
        identity: identityOf(ids),
        user_id: 'user_id' in user ? user.user_id : null,
        user_properties: this.#propertiesOf(ids),
      };
    });
  }

  #propertiesOf(ids: readonly string[]): Record<string, string> {
    const calls = this.#properties.filter(({ identity }) => ids.includes(named(identity)));
    // Entries, not Object.assign, which would set the prototype for the key `__proto__`.
    return Object.fromEntries(calls.flatMap(({ properties }) => Object.entries(asText(properties))));
  }
}

class UnionFind {
  readonly #parents = new Map<string, string>();

  add(id: string): void {
    if (!this.#parents.has(id)) this.#parents.set(id, id);
  }

  union(a: string, b: string): void {
    this.add(a);
    this.add(b);
    this.#parents.set(this.#find(a), this.#find(b));
  }

  sets(): string[][] {
    const sets = new Map<string, string[]>();
    for (const id of this.#parents.keys()) {
      const root = this.#find(id);
      sets.set(root, [...(sets.get(root) ?? []), id]);
    }
    return [...sets.values()];
  }

  setOf(id: string): string[] {
    return [...this.#parents.keys()].filter((other) => this.#find(other) === this.#find(id));
  }

  #find(id: string): string {
    const parent = this.#parents.get(id);
    if (parent === undefined) throw new Error(`nobody has the id ${id}`);
    return parent === id ? id : this.#find(parent);
  }
}

/** The prefixes keep the ids of both kinds apart: the identity "7" is not the user_id "7". */
function named(identity: string): string {
  return `@${identity}`;
}

function numbered(userId: string): string {
  return `#${userId}`;
}

function identityOf(ids: readonly string[]): string {
  const identities = ids.filter((id) => id.startsWith('@'));
  if (identities.length > 1) throw new Error(`two identities became one user: ${identities.join(', ')}`);
  return identities[0]?.slice(1) ?? '';
}

function asText(properties: Readonly<Record<string, string | number>>): Record<string, string> {
  return Object.fromEntries(Object.entries(properties).map(([key, value]) => [key, String(value)]));
}

function asNumbers(a: string, b: string): number {
  return BigInt(a) < BigInt(b) ? -1 : BigInt(a) > BigInt(b) ? 1 : 0;
}
