// Keeps the focus near its place when the focused element disappears, as in a row that is removed or a button that is replaced.

/** From now on, when the focus is lost, it moves to the nearest enclosing element that can have it, or else to the page. */
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
