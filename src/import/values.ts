// What the values of a row's fields can be used for. Pure.

/** Whether a field holds something. For an unknown value, exports leave out the field, or write null or an empty string. */
export function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null && value !== '';
}

/**
 * Like `isPresent`, for a field that names or dates something. Blanks alone count as nothing there, since some exports pad their columns.
 */
export function isGiven(value: unknown): boolean {
  return isPresent(value) && (typeof value !== 'string' || /\S/.test(value));
}

export function given(value: unknown): unknown {
  return isGiven(value) ? value : undefined;
}

/** Why a row cannot be used, in words that continue a sentence about the row. */
export class RowFault extends Error {}

/**
 * The text of a value that names something; undefined if it has none of its own: all objects would get the same name, and a rounded number
 * could be that of another row.
 */
export function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return isGiven(value) ? value : undefined;
  if (Number.isSafeInteger(value)) return String(value);
  return value instanceof Date && !Number.isNaN(value.getTime()) ? value.toISOString() : undefined;
}

/** The text of a field that names a row, a session or a user; undefined if it holds nothing. Throws RowFault if it has no text. */
export function nameIn(column: string, value: unknown): string | undefined {
  const text = textOf(value);
  if (text === undefined && isGiven(value))
    throw new RowFault(`has neither a text nor an integer in the column ${column}`);
  return text;
}

/** The value of a column, or at a path of names separated by dots. */
export function valueAt(row: Readonly<Record<string, unknown>>, column: string): unknown {
  if (Object.hasOwn(row, column)) return row[column];
  if (!column.includes('.')) return undefined;
  let value: unknown = row;
  for (const name of column.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

/** Numbers such as `801,40`, perhaps with points, blanks or apostrophes between thousands. */
const decimalComma = /^[+-]?(?:\d{1,3}(?:[.'’ \u00a0\u202f]\d{3})+|\d+)(?:,\d+)?$/;

/** A number with a decimal comma, rewritten with a point; undefined if the text is none. */
export function withPoint(text: string): string | undefined {
  const given = text.trim();
  if (!decimalComma.test(given)) return undefined;
  return given.replace(/[^\d,+-]/g, '').replace(',', '.');
}

/** Whether a text can only be a number with a decimal comma: `1,000` may also be a thousand. */
export function hasDecimalComma(text: string): boolean {
  return text.includes(',') && decimalComma.test(text.trim()) && !thousands.test(text.trim());
}

const thousands = /^[+-]?\d{1,3},\d{3}$/;

/** Sets a field of a row, even if its column is called `__proto__`. */
export function setField(fields: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== '__proto__') fields[name] = value;
  else Object.defineProperty(fields, name, { value, enumerable: true, writable: true, configurable: true });
}
