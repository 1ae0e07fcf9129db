// Reads JSON that may be damaged or come from anybody.

/** The value of a JSON text; an object without fields if it is none. Each field is checked where it is read. */
// biome-ignore lint/suspicious/noExplicitAny: whatever the other side wrote
export function parseJson(text: string | undefined): any {
  try {
    return JSON.parse(text ?? '') ?? {};
  } catch {
    return {};
  }
}
