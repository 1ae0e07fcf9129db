// Fields of rows and records whose names come from files.

/** Sets a field of a row, even if its column is called `__proto__`. */
export function setField(fields: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== '__proto__') fields[name] = value;
  else Object.defineProperty(fields, name, { value, enumerable: true, writable: true, configurable: true });
}
