// Finds where strings and numbers end in a JSON text. For invalid JSON the results may be wrong: JSON.parse refuses it.

const backslash = 0x5c;
const minus = 0x2d;
const nine = 0x39;

/** The closing quote of the string that begins here; -1 if there is none. */
export function endOfText(json: string, at: number): number {
  let end = json.indexOf('"', at + 1);
  while (end > 0 && isEscaped(json, end)) end = json.indexOf('"', end + 1);
  return end;
}

/** Whether an odd number of backslashes precedes this position. */
function isEscaped(json: string, at: number): boolean {
  let from = at;
  while (json.charCodeAt(from - 1) === backslash) from--;
  return (at - from) % 2 === 1;
}

/** Whether a number begins with this unit. */
export function beginsNumeral(unit: number): boolean {
  return unit >= minus && unit <= nine;
}

/** The end of the number that begins here. */
export function endOfNumeral(json: string, at: number): number {
  let end = at + 1;
  while (isPartOfNumeral(json.charCodeAt(end))) end++;
  return end;
}

/** A digit, a point, a sign or the letter of an exponent. */
function isPartOfNumeral(unit: number): boolean {
  return (unit >= minus && unit <= nine) || unit === 0x65 || unit === 0x45 || unit === 0x2b;
}
