// Shows the characters that nobody sees, or that change the order of others. Anybody may send a name, and with such a character it would
// look like the name of another user.

import { type ComponentChildren, Fragment, options, type VNode } from 'preact';

/** Joiners, marks of direction, variants and tags: what other scripts than Latin need, and emoji. */
const needed = String.raw`\p{Join_Control}\p{Variation_Selector}\u061c\u200e\u200f\u{e0020}-\u{e007f}`;
/** A character of another script, or an emoji. */
const foreign = String.raw`(?![\p{ASCII}\p{Script=Latin}\p{DI}])[^]`;
/** All others that are not seen, and those that no such character precedes or follows. */
const unseen = new RegExp(
  `((?![\\t\\n\\r${needed}])[\\p{Cc}\\p{Cf}\\p{DI}\\p{Zl}\\p{Zp}\\u2800]|(?<!${foreign}[${needed}]*)[${needed}](?![${needed}]*${foreign}))`,
  'u',
);

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
  if (typeof child !== 'string' || !unseen.test(child)) return child;
  return child.split(unseen).map((text, at) => {
    if (at % 2 === 0) return text;
    return show(`U+${text.codePointAt(0)?.toString(16).padStart(4, '0').toUpperCase()}`, text, at);
  });
}
