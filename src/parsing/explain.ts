// Turns a schema's errors into a refusal: the code, the field, and a sentence. Called only for refused values, so it may be
// slow.

import { answerFieldMax } from '../contract/limits.js';
import { type OutcomeCode, type Rejection, rejection } from '../contract/outcomes.js';
import { Compile, type Schema } from '../contract/typebox.js';

/** What is used here of a compiled schema. */
export type Validator = {
  Check(value: unknown): boolean;
  Errors(value: unknown): SchemaError[];
  Type(): ObjectSchema;
};
type ObjectSchema = Schema & { readonly properties?: Readonly<Record<string, Schema>> };
type SchemaError = { readonly keyword: string; readonly instancePath: string; readonly params: object };

const codeOfKeyword: Readonly<Record<string, OutcomeCode>> = {
  required: 'missing_field',
  type: 'invalid_type',
  maxLength: 'too_long',
  minLength: 'empty',
  minItems: 'empty',
  maxItems: 'too_many_records',
};

const sentences: Partial<Record<OutcomeCode, string>> = {
  missing_field: 'is required',
  too_long: 'is too long',
  empty: 'must not be empty',
  too_many_records: 'has too many elements',
};

/** The first reason why a schema refuses a value; undefined if it accepts the value. `surrogates`: its texts may not be Unicode. */
export function explain(validator: Validator, value: unknown, surrogates = false): Rejection | undefined {
  if (validator.Check(value)) return surrogates ? refuseLoneSurrogates(value as object) : undefined;
  const { value: bad, index } = narrowed(validator, value);
  const errors = validator.Errors(bad);
  const first = errors[0];
  if (first === undefined) return rejection('invalid_type', 'The value does not match the schema.');
  let path = first.instancePath;
  let code = codeOfKeyword[first.keyword] ?? 'invalid_type';
  // All branches of a union report errors at the same place. For a string the reason is its length.
  if (errors.some((error) => error.instancePath === path && error.keyword === 'maxLength')) code = 'too_long';
  if (first.keyword === 'required') {
    const { requiredProperties } = first.params as { requiredProperties?: string[] };
    path += `/${requiredProperties?.[0] ?? ''}`;
  }
  const field = fieldOfPointer(path);
  const sentence = sentences[code] ?? `has the wrong type${difference(errors, path, bad, index)}`;
  const message = `${field === '' ? 'The value' : field} ${sentence}.`;
  return field === '' ? rejection(code, message) : rejection(code, message, field);
}

/**
 * The value with only its first bad property, which has the same errors: `Errors` visits all properties and all elements of
 * their arrays, at up to 5 µs each. A bad array is reduced to its first bad element, which was at `index`.
 */
function narrowed(validator: Validator, value: unknown): { readonly value: unknown; readonly index: number } {
  const schema = validator.Type().properties?.properties;
  if (schema === undefined || typeof value !== 'object' || value === null) return { value, index: 0 };
  const { properties } = value as { properties?: unknown };
  if (typeof properties !== 'object' || properties === null || Array.isArray(properties))
    return { value, index: 0 };
  const one = propertiesValidators.get(schema) ?? Compile(schema);
  propertiesValidators.set(schema, one);
  const given = properties as Record<string, unknown>;
  for (const key in given) {
    const bad = given[key];
    if (one.Check({ [key]: bad })) continue;
    if (!Array.isArray(bad)) return { value: { ...value, properties: { [key]: bad } }, index: 0 };
    const index = Math.max(
      0,
      bad.findIndex((element) => !one.Check({ [key]: [element] })),
    );
    return { value: { ...value, properties: { [key]: bad.slice(index, index + 1) } }, index };
  }
  return { value: { ...value, properties: {} }, index: 0 };
}

/** By the schema of properties. */
const propertiesValidators = new Map<Schema, Pick<Validator, 'Check'>>();
/** Says which types a field accepts and which kind its value has. Never shows the value itself. */
function difference(
  errors: readonly SchemaError[],
  path: string,
  value: unknown,
  indexOfFirst: number,
): string {
  const found = valueAt(value, path);
  const typesAt = (place: string) => [
    ...new Set(
      errors.flatMap(({ keyword, instancePath, params }) =>
        keyword === 'type' && instancePath === place ? [String((params as { type?: unknown }).type)] : [],
      ),
    ),
  ];
  // When an element makes a list fail a union of types, the error is reported at the element's own path.
  const inner = Array.isArray(found)
    ? errors.find(({ keyword, instancePath }) => keyword === 'type' && instancePath.startsWith(`${path}/`))
    : undefined;
  if (inner !== undefined) {
    const place = inner.instancePath;
    const index = indexOfFirst + Number(place.slice(path.length + 1).replace(/\/.*/s, ''));
    return `: its element ${index} must be ${oneOf(typesAt(place))}, but is ${kindOf(valueAt(value, place))}`;
  }
  const types = typesAt(path);
  return types.length === 0 ? '' : `: it must be ${oneOf(types)}, but is ${kindOf(found)}`;
}

const kindNames: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  integer: 'an integer',
  boolean: 'a boolean',
  object: 'an object',
  array: 'an array',
  null: 'null',
};

function oneOf(types: readonly string[]): string {
  const names = types.map((type) => kindNames[type] ?? type);
  const last = names.at(-1) as string;
  return names.length === 1 ? last : `${names.slice(0, -1).join(', ')} or ${last}`;
}

/** The kind of a JSON value. A number that a double cannot hold is a kind of its own: no field accepts it. */
function kindOf(value: unknown): string {
  if (typeof value === 'number' && !Number.isFinite(value)) return 'a number that is too large';
  const type = value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
  return kindNames[type] ?? type;
}

/** The value at a JSON pointer. */
function valueAt(value: unknown, pointer: string): unknown {
  let found = value;
  for (const part of pointer.split('/').slice(1)) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key)) return undefined;
    found = (found as Readonly<Record<string, unknown>>)[key];
  }
  return found;
}

/** Why a field with this value is refused if it accepts only these types. */
export function wrongType(field: string, types: readonly string[], value: unknown): Rejection {
  const message = `${field} has the wrong type: it must be ${oneOf(types)}, but is ${kindOf(value)}.`;
  return rejection('invalid_type', message, field);
}

/** `/properties/a~1b` → `properties.a/b`, cut to the length that an answer may have. */
function fieldOfPointer(pointer: string): string {
  const path = pointer.slice(1).replaceAll('/', '.').replaceAll('~1', '/').replaceAll('~0', '~');
  return (path.length > answerFieldMax ? `${path.slice(0, answerFieldMax)}…` : path).toWellFormed();
}

/** Refuses a value that contains a string which is not Unicode text, at any depth. */
export function refuseLoneSurrogates(value: object): Rejection | undefined {
  const field = fieldWithLoneSurrogate(value, '');
  if (field === undefined) return undefined;
  return rejection('invalid_text', 'A string contains a lone surrogate, so it is not Unicode text.', field);
}

/** The first field, depth first, whose key or text is not well-formed. */
function fieldWithLoneSurrogate(value: unknown, path: string): string | undefined {
  if (typeof value === 'string') return value.isWellFormed() ? undefined : path;
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [key, element] of Object.entries(value)) {
    if (!key.isWellFormed()) return path === '' ? 'properties' : path;
    const inner = path === '' ? key : `${path}.${key}`.slice(0, answerFieldMax);
    const field = fieldWithLoneSurrogate(element, inner);
    if (field !== undefined) return field.toWellFormed();
  }
  return undefined;
}
