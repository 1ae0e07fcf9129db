// Sizes of text in the contract's unit (code points) and in that of requests (bytes of UTF-8). Pure.

/** Whether a text has more than `max` Unicode code points. */
export function isLongerThan(text: string, max: number): boolean {
  return text.length > max && cutToCodePoints(text, max).length < text.length;
}

/** The first `max` code points of a text. */
export function cutToCodePoints(text: string, max: number): string {
  if (text.length <= max) return text;
  let units = 0;
  for (let count = 0; count < max && units < text.length; count++) {
    units += (text.codePointAt(units) as number) > 0xffff ? 2 : 1;
  }
  return text.slice(0, units);
}

/** Bytes of a text in UTF-8. */
export function utf8Bytes(text: string): number {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const point = text.codePointAt(i) as number;
    if (point > 0x7ff) bytes += 2;
    else if (point > 0x7f) bytes++;
    // It has two units and four bytes.
    if (point > 0xffff) i++;
  }
  return bytes;
}

/** Whether a text contains half of a surrogate pair. Such a text is not Unicode, and the server refuses it. */
export function hasLoneSurrogate(text: string): boolean {
  return /[\ud800-\udfff]/u.test(text);
}
