// Reads single variables of the environment. Each reader names the variable in its message, and repeats the value only if it cannot hold
// a secret.

import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';

export class ConfigError extends Error {
  /** `what`: what the value must be. */
  static of(name: string, what: string, value: string): ConfigError {
    return new ConfigError(`${name} must be ${what}, not ${JSON.stringify(value)}`);
  }
}

export class Variables {
  constructor(private readonly env: NodeJS.ProcessEnv) {}

  /** The text of a variable; `fallback` if it is unset or empty. */
  text(name: string, fallback = ''): string {
    return this.env[name] || fallback;
  }

  /** A whole number from `min` to `max`, both included. */
  integer(name: string, fallback: number, min: number, max: number): number {
    const value = this.text(name, String(fallback));
    if (!/^\d+$/.test(value) || Number(value) < min || Number(value) > max)
      throw ConfigError.of(name, `a whole number from ${min} to ${max}`, value);
    return Number(value);
  }

  /** A number from 0.01 to 1. */
  fraction(name: string, fallback: number): number {
    const value = this.text(name, String(fallback));
    if (!/^(0\.\d{1,4}|1)$/.test(value) || Number(value) < 0.01)
      throw ConfigError.of(name, 'a number from 0.01 to 1', value);
    return Number(value);
  }

  /** Reads a length of time such as 24h, at most 30 days. Returns milliseconds. */
  duration(name: string, fallback: string): number {
    const value = this.text(name, fallback);
    const [, count, unit = ''] = /^(\d{1,5})([smhd])$/.exec(value) ?? [];
    const unitMs = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }[unit] ?? Number.NaN;
    const ms = Number(count) * unitMs;
    if (!(ms <= 30 * 86_400_000))
      throw ConfigError.of(name, 'a time such as 30m, 24h or 7d, at most 30d', value);
    return ms;
  }

  oneOf<T extends string>(name: string, values: readonly T[], fallback: T): T {
    const value = this.text(name, fallback);
    const found = values.find((candidate) => candidate === value);
    if (found === undefined) throw ConfigError.of(name, `one of ${values.join(', ')}`, value);
    return found;
  }

  /** A name of letters, digits and underscores, at most 63 characters. */
  identifier(name: string, fallback: string): string {
    const value = this.text(name, fallback);
    if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(value))
      throw ConfigError.of(name, 'letters, digits and underscores', value);
    return value;
  }

  /** A URL with one of these protocols; undefined if the variable is unset or empty. */
  url(name: string, protocols: readonly string[] = web): string | undefined {
    const value = this.text(name);
    if (value !== '') checkUrl(name, protocols, value);
    return value || undefined;
  }

  /** One URL, or several of one protocol; undefined if the variable is unset or empty. */
  urls(name: string, protocols: readonly string[] = web): readonly string[] | undefined {
    const values = this.list(name);
    for (const value of values) checkUrl(name, protocols, value);
    if (new Set(values.map((value) => new URL(value).protocol)).size > 1)
      throw new ConfigError(`${name} must be URLs of one protocol, separated by commas`);
    return values.length === 0 ? undefined : values;
  }

  /** Addresses and networks in CIDR notation. */
  networks(name: string): string[] {
    return this.list(name, 'addresses or networks such as 10.0.0.0/8', isNetwork);
  }

  /** Addresses, networks in CIDR notation or names of hosts. */
  hostsAndNetworks(name: string): string[] {
    const hostForm = /^(?=.*[a-z])[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/i;
    const isOne = (value: string) => isNetwork(value) || hostForm.test(value);
    return this.list(name, 'hosts, addresses or networks such as 10.0.0.0/8', isOne);
  }

  /** Values separated by commas. */
  list(name: string, what = '', isOne: (value: string) => boolean = () => true): string[] {
    const text = this.text(name).trim();
    const values = text === '' ? [] : text.split(',').map((value) => value.trim());
    for (const value of values)
      if (!isOne(value)) throw ConfigError.of(name, `${what}, separated by commas`, value);
    return values;
  }
}

const web = ['http:', 'https:'];

/** The message does not repeat the value, which may hold a password. */
function checkUrl(name: string, protocols: readonly string[], value: string): void {
  if (!URL.canParse(value) || !protocols.includes(new URL(value).protocol))
    throw new ConfigError(`${name} must be a URL that begins with ${protocols.join('// or ')}//`);
}

function isNetwork(value: string): boolean {
  const [address = '', bits, ...more] = value.split('/');
  const bitsMax = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
  const fits = bits === undefined ? bitsMax > 0 : /^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax;
  return fits && more.length === 0 && !address.includes('%');
}

/** The text of a file in DATA_DIR; undefined before the first start, which makes the file. */
export function readFileOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new ConfigError(`DATA_DIR: ${file} cannot be read (${code})`);
  }
}
