// Lengths of text, in Unicode code points. Browsers load it too. Pure.

/** Whether a string has more than `max` code points. Nearly free for short strings. */
export function isLongerThan(text: string, max: number): boolean {
  return text.length > max && cutToCodePoints(text, max).length < text.length;
}

/** The first `max` code points of a text. */
export function cutToCodePoints(text: string, max: number): string {
  if (text.length <= max) return text;
  let units = 0;
  for (let count = 0; count < max && units < text.length; count++) units += isPair(text, units) ? 2 : 1;
  return text.slice(0, units);
}

/** Whether a surrogate pair begins here. */
export function isPair(text: string, at: number): boolean {
  const unit = text.charCodeAt(at);
  const next = text.charCodeAt(at + 1);
  return unit >= 0xd800 && unit <= 0xdbff && next >= 0xdc00 && next <= 0xdfff;
}
