// Identities look alike if they have the same plain form: lower case, without surrounding blanks. A Bloom filter of each granule
// (by_plain_form) holds the plain forms that differ from their identity; all others are already in by_identity. So the filter costs
// nothing where identities are in lower case.

/** The plain form of an identity, letter by letter as ClickHouse's lowerUTF8 maps them. */
export function plainForm(identity: string): string {
  return `lowerUTF8(trim(BOTH ' \\t\\n\\v\\f\\r' FROM ${identity}))`;
}

/** The condition on rows whose identity has one of these plain forms, a query of one column. It uses the Bloom filters. */
export function hasPlainForm(plainForms: string): string {
  return `identity != '' AND (identity IN (${plainForms}) OR ${differsAndHas(plainForms)})`;
}

/**
 * The condition on rows whose identity is not its own plain form, and has one of these: in the expression of its Bloom filter
 * (by_plain_form of the stored tables).
 */
export function differsAndHas(plainForms: string): string {
  // A blank is not a plain form, so it can stand for all identities that are their own plain form.
  return `if(${plainForm('identity')} = identity, ' ', ${plainForm('identity')}) IN (${plainForms})`;
}
