// TypeBox, as the service uses it, and the words in which all schemas are written. The build bundles its 680 files into one: loading them
// took half of an API process's start.

import Type, { type TProperties, type TSchema } from 'typebox';

export type { Static, TObject, TSchema as Schema } from 'typebox';
export { Compile } from 'typebox/compile';
export { Type };

export const { Optional: optional } = Type;

type More = Readonly<Record<string, unknown>>;
/** What a schema says besides its type: a description with an example or other options, or options alone. */
type About = readonly [description?: string, more?: More | string] | readonly [options: More];

function saying([first, more]: About): More {
  if (typeof first === 'object') return first;
  const options = typeof more === 'string' ? { examples: [more] } : more;
  return { ...options, ...(first !== undefined && { description: first }) };
}

export const text = (...about: About) => Type.String(saying(about));
/** A text of 1 to `max` characters. */
export const textUpTo = (max: number, description: string, example: string) =>
  text(description, { minLength: 1, maxLength: max, examples: [example] });
export const integer = (...about: About) => Type.Integer(saying(about));
export const number = (...about: About) => Type.Number(saying(about));
export const flag = (...about: About) => Type.Boolean(saying(about));
export const time = (description?: string) => text({ ...saying([description]), format: 'date-time' });
/** A whole number that is not negative. */
export const count = (description?: string) => integer({ ...saying([description]), minimum: 0 });
/** A number that is not negative. */
export const amount = () => number({ minimum: 0 });

export function literal<const Value extends string | boolean>(value: Value, ...about: About) {
  return Type.Literal(value, saying(about));
}

/** One of several schemas. */
export function anyOf<Of extends TSchema[]>(of: [...Of], ...about: About) {
  return Type.Union(of, saying(about));
}

export function orNull<Of extends TSchema>(of: Of, ...about: About) {
  return anyOf([of, Type.Null()], ...about);
}

/** One of several constants. */
export function either<const Value extends string>(values: readonly Value[], ...about: About) {
  const constants = values.map((value) => literal(value));
  return Type.Unsafe<Value>(anyOf(constants, ...about));
}

/** Like `either`, in the shorter form that administrators' documents have. */
export function oneOf<const Value extends string>(values: readonly Value[], ...about: About) {
  return Type.Unsafe<Value>({ type: 'string', enum: [...values], ...saying(about) });
}

/** An object whose fields may have any names. A Record would let the value of a name with a line break pass unchecked. */
export function anyFields(of: TSchema, ...about: About) {
  return Type.Object({}, { ...saying(about), additionalProperties: of });
}

/** The same for answers, with the type of the values. */
export function byName<Of extends TSchema>(of: Of, ...about: About) {
  return Type.Record(Type.String(), of, saying(about));
}

export function listOf<Of extends TSchema>(of: Of, ...about: About) {
  return Type.Array(of, saying(about));
}

/** The fields of an object. A description comes before them. */
type Fields<Of extends TProperties> = readonly [fields: Of] | readonly [description: string, fields: Of];

function fieldsFirst<Of extends TProperties>(given: Fields<Of>): readonly [fields: Of, description?: string] {
  return given.length === 1 ? given : [given[1], given[0]];
}

export function object<Of extends TProperties>(...given: Fields<Of>) {
  const [fields, description] = fieldsFirst(given);
  return Type.Object(fields, saying([description]));
}

/** A list of objects. */
export function objects<Of extends TProperties>(...given: Fields<Of>) {
  const [fields, description] = fieldsFirst(given);
  return listOf(object(fields), description);
}
