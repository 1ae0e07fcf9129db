// Reads single variables of the environment. Each function names the variable in its message, and repeats the value only if it cannot hold
// a secret.

import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';

export class ConfigError extends Error {}

/** The text of a variable; `fallback` if it is unset or empty. */
export function text(env: NodeJS.ProcessEnv, name: string, fallback: string): string {
  const value = env[name];
  return value === undefined || value === '' ? fallback : value;
}

/** A whole number from `min` to `max`, both included. */
export function integer(
  env: NodeJS.ProcessEnv,
  name: string,
  fallback: number,
  min: number,
  max: number,
): number {
  const value = text(env, name, String(fallback));
  const number = Number(value);
  if (!/^\d+$/.test(value) || number < min || number > max) {
    throw new ConfigError(
      `${name} must be a whole number from ${min} to ${max}, not ${JSON.stringify(value)}`,
    );
  }
  return number;
}

/** A number from 0.01 to 1. */
export function fraction(env: NodeJS.ProcessEnv, name: string, fallback: number): number {
  const value = text(env, name, String(fallback));
  if (!/^(0\.\d{1,4}|1)$/.test(value) || Number(value) < 0.01)
    throw new ConfigError(`${name} must be a number from 0.01 to 1, not ${JSON.stringify(value)}`);
  return Number(value);
}

/** Reads a length of time such as 24h, at most 30 days. Returns milliseconds. */
export function duration(env: NodeJS.ProcessEnv, name: string, fallback: string): number {
  const value = text(env, name, fallback);
  const [, count, unit] = /^(\d{1,5})([smhd])$/.exec(value) ?? [];
  const ms = Number(count) * ({ s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }[unit ?? ''] ?? Number.NaN);
  if (!(ms <= 30 * 86_400_000))
    throw new ConfigError(
      `${name} must be a time such as 30m, 24h or 7d, at most 30d, not ${JSON.stringify(value)}`,
    );
  return ms;
}

export function oneOf<T extends string>(
  env: NodeJS.ProcessEnv,
  name: string,
  values: readonly T[],
  fallback: T,
): T {
  const value = text(env, name, fallback);
  const found = values.find((candidate) => candidate === value);
  if (found === undefined) {
    throw new ConfigError(`${name} must be one of ${values.join(', ')}, not ${JSON.stringify(value)}`);
  }
  return found;
}

/** A name of letters, digits and underscores, at most 63 characters. */
export function identifier(env: NodeJS.ProcessEnv, name: string, fallback: string): string {
  const value = text(env, name, fallback);
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(value)) {
    throw new ConfigError(`${name} must be letters, digits and underscores, not ${JSON.stringify(value)}`);
  }
  return value;
}

/** A URL with one of these protocols, such as `https:`; undefined if the variable is unset or empty. */
export function url(env: NodeJS.ProcessEnv, name: string, protocols: string[]): string | undefined {
  const value = env[name];
  if (value === undefined || value === '') return undefined;
  if (!URL.canParse(value) || !protocols.includes(new URL(value).protocol)) {
    // The message does not repeat the value, which may hold a password.
    throw new ConfigError(`${name} must be a URL that begins with ${protocols.join('// or ')}//`);
  }
  return value;
}

/** One URL, or several of one protocol separated by commas. */
export function urls(env: NodeJS.ProcessEnv, name: string, protocols: string[]): string | undefined {
  const values = (env[name] ?? '').split(',').map((value) => value.trim());
  const checked = values.map((value) => url({ [name]: value }, name, protocols));
  if (values.length > 1 && checked.some((value) => value?.split(':')[0] !== values[0]?.split(':')[0])) {
    throw new ConfigError(`${name} must be URLs of one protocol, separated by commas`);
  }
  return checked[0] === undefined ? undefined : checked.join(',');
}

/** Addresses and networks in CIDR notation, separated by commas. */
export function networks(env: NodeJS.ProcessEnv, name: string): string[] {
  const values = listed(env, name);
  for (const value of values) {
    if (!isNetwork(value)) {
      throw new ConfigError(
        `${name} must be addresses or networks such as 10.0.0.0/8, separated by commas, not ${JSON.stringify(value)}`,
      );
    }
  }
  return values;
}

/** Addresses, networks in CIDR notation or names of hosts, separated by commas. */
export function hostsAndNetworks(env: NodeJS.ProcessEnv, name: string): string[] {
  const values = listed(env, name);
  const hostForm = /^(?=.*[a-z])[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/i;
  for (const value of values) {
    if (!isNetwork(value) && !hostForm.test(value)) {
      throw new ConfigError(
        `${name} must be hosts, addresses or networks such as 10.0.0.0/8, separated by commas, not ${JSON.stringify(value)}`,
      );
    }
  }
  return values;
}

function listed(env: NodeJS.ProcessEnv, name: string): string[] {
  const values = text(env, name, '')
    .split(',')
    .map((value) => value.trim());
  return values.length === 1 && values[0] === '' ? [] : values;
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
