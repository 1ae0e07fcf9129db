// Keeps pages up to date while the browser translates them. The browser replaces each text node by an element, while Preact continues to
// change the node that it made, which is no longer in the page: a count, or the name of a button, would stay as it was. So a node that
// changes is put back in its place, with its neighbours, and the browser translates them again. When a node is removed, its translation is
// removed too.

import { options } from 'preact';

/** Starts this for everything that Preact renders below `root`. */
export function keepTexts(root: HTMLElement): void {
  const translationOf = new WeakMap<Node, ChildNode>();
  const textOf = new WeakMap<Node, Text>();
  const observer = new MutationObserver((records) => {
    for (const { type, target, removedNodes, addedNodes, previousSibling, nextSibling } of records) {
      if (type === 'characterData') {
        const parent = target.isConnected ? undefined : translationOf.get(target)?.parentNode;
        for (const child of [...(parent?.childNodes ?? [])]) {
          const text = textOf.get(child);
          if (text !== undefined) child.replaceWith(text);
        }
        continue;
      }
      for (const removed of removedNodes) {
        if (!(removed instanceof Text) || removed.isConnected) continue;
        const translation = [...addedNodes, previousSibling, nextSibling].find(
          (node) => node instanceof HTMLElement && node.tagName === 'FONT' && !textOf.has(node),
        );
        if (translation == null) continue;
        translationOf.set(removed, translation as HTMLElement);
        textOf.set(translation, removed);
        observer.observe(removed, { characterData: true });
      }
    }
  });
  observer.observe(root, { childList: true, subtree: true });
  const { unmount } = options;
  options.unmount = (vnode) => {
    unmount?.(vnode);
    // Preact's internal name for the node that it has rendered; a test fails if that changes.
    const { __e: drawn } = vnode as unknown as { readonly __e?: Node | null };
    if (drawn instanceof Text && !drawn.isConnected) translationOf.get(drawn)?.remove();
  };
}
