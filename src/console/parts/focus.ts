// Keeps the focus near where the reader was, when what had it goes: a row that was removed, a button that another one replaced.

/** From then on. The focus goes to the nearest of what was around that can have it, at last to the page. */
export function keepFocus(root: HTMLElement): void {
  let around: readonly HTMLElement[] = [];
  root.addEventListener('focusin', ({ target }) => {
    const found: HTMLElement[] = [];
    for (let at = target as HTMLElement | null; at !== null; at = at.parentElement) found.push(at);
    around = found;
  });
  new MutationObserver(() => {
    const [focused] = around;
    if (focused === undefined || focused.isConnected || document.activeElement !== document.body) return;
    const next = around.find((each) => each.isConnected && (each.tabIndex >= 0 || each.id === 'page'));
    (next ?? document.getElementById('page'))?.focus({ preventScroll: true });
  }).observe(root, { childList: true, subtree: true });
}
