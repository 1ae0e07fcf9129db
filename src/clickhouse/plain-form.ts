// Identities look alike if they have the same plain form: in lower case and without the blanks around them. A Bloom filter
// of each granule (by_plain_form) holds the plain forms that differ from their identity; all others are in
// by_identity already. So the filter costs nothing where identities are written in lower case.

/** The plain form of an identity, letter by letter as ClickHouse's lowerUTF8 maps them. */
export function plainForm(identity: string): string {
  return `lowerUTF8(trim(BOTH ' \\t\\n\\v\\f\\r' FROM ${identity}))`;
}

/**
 * The condition on rows whose identity has one of these plain forms, a query of one column: in a form that reaches the Bloom
 * filters.
 */
export function hasPlainForm(plainForms: string): string {
  return `identity != '' AND (identity IN (${plainForms}) OR ${differsAndHas(plainForms)})`;
}

/**
 * The condition on rows whose identity is not its own plain form, and has one of these: in the expression of its Bloom filter
 * (by_plain_form of the stored tables).
 */
export function differsAndHas(plainForms: string): string {
  // A blank is not a plain form, so it stands for all identities that are their own.
  return `if(${plainForm('identity')} = identity, ' ', ${plainForm('identity')}) IN (${plainForms})`;
}
