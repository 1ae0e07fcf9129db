// Shows the characters that nobody sees, or that change the order of others. Anybody may send a name, and with such a character it would
// look like the name of another user.

import { type ComponentChildren, Fragment, options, type VNode } from 'preact';

/** Joiners, marks of direction, variants and tags: what other scripts than Latin need, and emoji. */
const needed = String.raw`\p{Join_Control}\p{Variation_Selector}\u061c\u200e\u200f\u{e0020}-\u{e007f}`;
/**
 * All others that are not seen, one by one, and runs of these: looking for the neighbour of a run from each of its characters took a minute
 * for 64,000.
 */
const unseen = new RegExp(
  `(?![\\t\\n\\r${needed}])[\\p{Cc}\\p{Cf}\\p{DI}\\p{Zl}\\p{Zp}\\u2800]|([${needed}]+)`,
  'gu',
);
/** A character of another script, or an emoji: a run beside one stays as it is. */
const foreign = /^(?![\p{ASCII}\p{Script=Latin}\p{DI}]).$/su;
/** How many are shown in a text. Names are shorter. */
const shownMax = 1_000;

/** Elements whose content is text only, but is no name that somebody has sent. */
const plain: ReadonlySet<unknown> = new Set(['textarea', 'title', 'style']);

/** Elements whose content is text only: in these the code stands in place of the character. */
const textOnly: ReadonlySet<unknown> = new Set(['option', 'text']);

/**
 * Starts this for everything that Preact renders but attributes. The character stays in the text where it can, so that a copied name is the
 * one that was sent.
 */
export function showUnseen(): void {
  const { vnode: before } = options;
  options.vnode = (vnode) => {
    before?.(vnode);
    const { type, props } = vnode as VNode<{ class?: string }>;
    if (props.class === className) return;
    if (textOnly.has(type)) props.children = withCodes(props.children, (code) => `[${code}]`);
    else if ((typeof type === 'string' && !plain.has(type)) || type === Fragment)
      props.children = withCodes(props.children, asElement);
  };
}

const className = 'unseen';

/** Shows a character with its code. */
type Show = (code: string, character: string, at: number) => ComponentChildren;

const asElement: Show = (code, character, at) => (
  <span key={at} class={className} data-code={code}>
    {character}
  </span>
);

function withCodes(child: ComponentChildren, show: Show): ComponentChildren {
  if (Array.isArray(child)) return child.map((each) => withCodes(each, show));
  if (typeof child !== 'string') return child;
  const shown: ComponentChildren[] = [];
  let end = 0;
  for (const [index, character] of unseenIn(child)) {
    const code = `U+${character.codePointAt(0)?.toString(16).padStart(4, '0').toUpperCase()}`;
    shown.push(child.slice(end, index), show(code, character, index));
    end = index + character.length;
    if (shown.length >= 2 * shownMax) break;
  }
  return shown.length === 0 ? child : [...shown, child.slice(end)];
}

/** The characters that are shown by their codes, and where they are. */
function* unseenIn(text: string): Generator<readonly [index: number, character: string]> {
  for (const { 0: found, 1: run, index } of text.matchAll(unseen)) {
    const beside = [...text.slice(Math.max(0, index - 2), index)].slice(-1);
    beside.push(...[...text.slice(index + found.length, index + found.length + 2)].slice(0, 1));
    if (run !== undefined && beside.some((each) => foreign.test(each))) continue;
    let at = index;
    for (const character of found) {
      yield [at, character];
      at += character.length;
    }
  }
}
