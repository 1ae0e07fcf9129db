// Rewrites schemas into the form that Redoc shows best. Their meaning stays the same.

/** A document, or a part of it, in which every schema is plain. */
export function withPlainSchemas<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(withPlainSchemas) as Value;
  const { anyOf, oneOf, ...others } = Object.fromEntries(
    Object.entries(value).map(([name, held]) => [name, withPlainSchemas(held)]),
  );
  const variants = anyOf ?? oneOf;
  if (!Array.isArray(variants))
    return { ...others, ...(variants === undefined ? {} : { anyOf, oneOf }) } as Value;
  // These variants only say which fields go together, which the fields' descriptions also say. Redoc would show them without fields.
  if (variants.every(onlyRequires)) return others as Value;
  if (variants.every(isConstant))
    return { type: variants[0].type, ...others, enum: variants.map(constantOf) } as Value;
  return { ...others, ...(anyOf === undefined ? { oneOf } : { anyOf }) } as Value;
}

const onlyRequires = (variant: object) => Object.keys(variant).join() === 'required';
const isConstant = (variant: object) => 'const' in variant && Object.keys(variant).length <= 2;
const constantOf = (variant: { readonly const: unknown }) => variant.const;
