// Lengths of text, in Unicode code points. Pure.

/** Whether a string has more than `max` code points. Nearly free for short strings. */
export function isLongerThan(text: string, max: number): boolean {
  return text.length > max && cutToCodePoints(text, max).length < text.length;
}

/** The first `max` code points of a text. */
export function cutToCodePoints(text: string, max: number): string {
  if (text.length <= max) return text;
  let units = 0;
  for (let count = 0; count < max && units < text.length; count++) {
    const unit = text.charCodeAt(units);
    units += unit >= 0xd800 && unit <= 0xdbff ? 2 : 1;
  }
  return text.slice(0, units);
}
