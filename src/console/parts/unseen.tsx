// Shows the characters that nobody sees, or that change the order of others. Anybody may send a name, and with such a character it would
// look like the name of another user.

import { type ComponentChildren, Fragment, options, type VNode } from 'preact';

/** Joiners, marks of direction and tags belong to other scripts than Latin, and to emoji: beside those they stay. */
const unseen =
  /((?![\t\n\r\p{Join_Control}\u200e\u200f\u{e0020}-\u{e007f}])[\p{Cc}\p{Cf}]|(?<!\P{ASCII})[\p{Join_Control}\u200e\u200f\u{e0020}-\u{e007f}](?!\P{ASCII}))/u;

/** Elements whose content is text only. */
const plain: ReadonlySet<unknown> = new Set(['option', 'textarea', 'title', 'text', 'style']);

/** Starts this for everything that Preact renders. The character stays in the text, so that a copied name is the one that was sent. */
export function showUnseen(): void {
  const { vnode: before } = options;
  options.vnode = (vnode) => {
    before?.(vnode);
    const { type, props } = vnode as VNode<{ class?: string }>;
    if (props.class === className) return;
    if ((typeof type === 'string' && !plain.has(type)) || type === Fragment)
      props.children = withCodes(props.children);
  };
}

const className = 'unseen';

function withCodes(child: ComponentChildren): ComponentChildren {
  if (Array.isArray(child)) return child.map(withCodes);
  if (typeof child !== 'string' || !unseen.test(child)) return child;
  return child.split(unseen).map((text, at) => {
    if (at % 2 === 0) return text;
    const code = text.codePointAt(0)?.toString(16).padStart(4, '0').toUpperCase();
    return (
      <span key={at} class={className} data-code={`U+${code}`}>
        {text}
      </span>
    );
  });
}
