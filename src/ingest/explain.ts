// From what a schema says of a value to a reason of the table: which code, which field, in words. Only ever
// called for values that were refused, so it may take its time.

import { type OutcomeCode, type Rejection, rejection } from '../contract/outcomes.js';

/** A compiled schema, as far as it is used. */
export type Validator = { Check(value: unknown): boolean; Errors(value: unknown): SchemaError[] };
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
  invalid_type: 'has the wrong type',
  too_long: 'is too long',
  empty: 'must not be empty',
  too_many_records: 'has too many elements',
};

/** The first reason why a schema refuses a value; undefined when it does not. */
export function explain(validator: Validator, value: unknown): Rejection | undefined {
  if (validator.Check(value)) return undefined;
  const errors = validator.Errors(value);
  const first = errors[0];
  if (first === undefined) return rejection('invalid_type', 'The value is not as described.');
  let path = first.instancePath;
  let code = codeOfKeyword[first.keyword] ?? 'invalid_type';
  // The branches of a union all complain at the same place: of a string, its length is the reason.
  if (errors.some((error) => error.instancePath === path && error.keyword === 'maxLength')) code = 'too_long';
  if (first.keyword === 'required') {
    const { requiredProperties } = first.params as { requiredProperties?: string[] };
    path += `/${requiredProperties?.[0] ?? ''}`;
  }
  const field = fieldOfPointer(path);
  const message = `${field === '' ? 'The value' : field} ${sentences[code] ?? sentences.invalid_type}.`;
  return field === '' ? rejection(code, message) : rejection(code, message, field);
}

const fieldLengthMax = 100;

/** `/properties/a~1b` → `properties.a/b`, cut to a length fit for an answer. */
function fieldOfPointer(pointer: string): string {
  const path = pointer.slice(1).replaceAll('/', '.').replaceAll('~1', '/').replaceAll('~0', '~');
  return (path.length > fieldLengthMax ? `${path.slice(0, fieldLengthMax)}…` : path).toWellFormed();
}

/** Refuses a value that holds a string which is no Unicode text, wherever it is. */
export function refuseLoneSurrogates(value: object): Rejection | undefined {
  const field = fieldWithLoneSurrogate(value, '');
  if (field === undefined) return undefined;
  return rejection('invalid_text', 'A string holds a lone surrogate, which is no Unicode text.', field);
}

/** The first field, depth first, whose key or text is not well-formed. */
function fieldWithLoneSurrogate(value: unknown, path: string): string | undefined {
  if (typeof value === 'string') return value.isWellFormed() ? undefined : path;
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [key, element] of Object.entries(value)) {
    if (!key.isWellFormed()) return path === '' ? 'properties' : path;
    const inner = path === '' ? key : `${path}.${key}`.slice(0, fieldLengthMax);
    const field = fieldWithLoneSurrogate(element, inner);
    if (field !== undefined) return field.toWellFormed();
  }
  return undefined;
}
