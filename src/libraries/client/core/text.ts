// Sizes of text in bytes of UTF-8, as requests have them. Pure.

import { isPair } from '../../../parsing/code-points.js';

/** Bytes of a text in UTF-8. */
export function utf8Bytes(text: string): number {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit > 0x7ff && !isPair(text, i)) bytes += 2;
    else if (unit > 0x7f) bytes++;
    if (isPair(text, i)) {
      bytes++;
      i++;
    }
  }
  return bytes;
}

/** Whether a text contains half of a surrogate pair. Such a text is not Unicode, and the server refuses it. */
export function hasLoneSurrogate(text: string): boolean {
  return /[\ud800-\udfff]/u.test(text);
}
