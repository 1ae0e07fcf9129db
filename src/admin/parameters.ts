// The parameters of a command, from a request or from the command line, checked against the schemas that the OpenAPI document shows.

import { AdministrationError } from '../contract/errors.js';
import { Compile, Type } from '../contract/typebox.js';
import { type Command, type Fields, isWholeNumber, shapeOf } from './command.js';

/** The parts of a schema that the checks read. */
type Described = {
  readonly type?: string | readonly string[];
  readonly title?: string;
  readonly properties?: Readonly<Record<string, Described>>;
  readonly items?: Described;
  readonly anyOf?: readonly Described[];
  readonly const?: unknown;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
};

/**
 * The given fields that are parameters of the command. `nameOf`: the name by which the caller knows a parameter. Throws
 * AdministrationError, which uses the caller's names.
 */
export function readParameters(
  command: Command,
  given: Fields,
  nameOf: (field: string) => string = (field) => field,
): Fields {
  const { validator, schema } = checkOf(command);
  const found = converted(schema, command.called === undefined ? known(schema, given) : given) as Fields;
  if (validator.Check(found)) return found;
  const [error] = validator.Errors(found);
  throw new AdministrationError(sentenceOf(schema, error as Fault, nameOf));
}

type Check = { readonly validator: ReturnType<typeof Compile>; readonly schema: Described };

/** Compiled on first use, since a command line needs only one. */
const checks = new WeakMap<Command, Check>();

function checkOf(command: Command): Check {
  const known = checks.get(command);
  if (known !== undefined) return known;
  const { called, checkedInside = [] } = command;
  const unchecked = Object.fromEntries(checkedInside.map((name) => [name, Type.Unknown()]));
  const options = called === undefined ? {} : { title: called, additionalProperties: false };
  const schema = Type.Object({ ...shapeOf(command), ...unchecked }, options);
  const check = { validator: Compile(schema), schema: schema as Described };
  checks.set(command, check);
  return check;
}

function known({ properties = {} }: Described, given: Fields): Fields {
  const isKnown = ([name, value]: [string, unknown]) =>
    value !== undefined && Object.hasOwn(properties, name);
  return Object.fromEntries(Object.entries(given).filter(isKnown));
}

/** Turns texts of digits into numbers where the schema has numbers. */
function converted(schema: Described | undefined, value: unknown): unknown {
  if (schema === undefined) return value;
  const { anyOf = [], items, properties } = schema;
  if (typeof value === 'string' && [schema, ...anyOf].some(isWholeNumber))
    return /^\d+$/.test(value) ? Number(value) : value;
  if (Array.isArray(value)) return items === undefined ? value : value.map((each) => converted(items, each));
  if (typeof value !== 'object' || value === null || properties === undefined) return value;
  const ownOf = (name: string) => (Object.hasOwn(properties, name) ? properties[name] : undefined);
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [name, converted(ownOf(name), each)]),
  );
}

type Fault = {
  readonly keyword: string;
  readonly instancePath: string;
  readonly params: Readonly<Record<string, unknown>>;
};

function sentenceOf(schema: Described, fault: Fault, nameOf: (field: string) => string): string {
  const { requiredProperties } = fault.params as { requiredProperties?: string[] };
  const path = fault.instancePath
    .split('/')
    .slice(1)
    .concat(requiredProperties?.slice(0, 1) ?? []);
  let [at, name]: [Described, string] = [schema, 'the body'];
  for (const [depth, key] of path.entries()) {
    const { properties, title } = at;
    if (properties === undefined) break;
    const next = Object.hasOwn(properties, key) ? properties[key] : undefined;
    if (next === undefined) {
      const others = depth === 0 ? '' : `; the ${title}s are ${Object.keys(properties).join(', ')}`;
      return `there is no ${title} ${key}${others}`;
    }
    name = depth === 0 ? nameOf(key) : `the ${title} ${key}`;
    at = next;
  }
  if (fault.keyword === 'maxLength') return `${name} must have at most ${fault.params.limit} characters`;
  if (fault.keyword === 'maxItems') return `${name} must have at most ${fault.params.limit} elements`;
  return `${name} must be ${inWords(at)}`;
}

function inWords(schema: Described): string {
  const { anyOf, items, minimum, maximum, type } = schema;
  if (anyOf !== undefined) {
    const [last, ...others] = anyOf.map(inWords).reverse();
    return `${others.reverse().join(', ')}, or ${last}`;
  }
  if (schema.const !== undefined) return String(schema.const);
  if (schema.enum !== undefined)
    return schema.enum.length === 2 ? schema.enum.join(' or ') : `one of ${schema.enum.join(', ')}`;
  if (isWholeNumber(schema)) return `a whole number from ${minimum} to ${maximum}`;
  if (type === 'array') return items?.type === 'string' ? 'a list of strings' : 'a list of whole numbers';
  if (Array.isArray(type)) return 'a whole number or its digits';
  if (type === 'boolean') return 'true or false';
  return type === 'object' ? 'an object' : 'a string';
}
