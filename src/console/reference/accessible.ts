// Makes Redoc usable with a keyboard and a screen reader: its search button works only with a mouse, and its menu and its search dialog
// lack roles and names. Redoc renders them repeatedly, so they are corrected at each change of the page.

export function keepAccessible(document: Document): void {
  new MutationObserver(() => mend(document)).observe(document.body, { childList: true, subtree: true });
}

function mend(document: Document): void {
  describe(document.querySelector('.menu-content'), { role: 'navigation', 'aria-label': 'Operations' });
  describe(document.querySelector('[data-testid="search-dialog"]'), {
    role: 'dialog',
    'aria-modal': 'true',
    'aria-label': 'Search',
  });
  describe(document.querySelector('[data-testid="search-dialog"] header button'), { 'aria-label': 'Clear' });
  const search = document.querySelector<HTMLElement>(
    '[data-testid="search-trigger"]:not([role], :has(button))',
  );
  if (search === null) return;
  describe(search, { role: 'button', tabindex: '0' });
  search.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    search.click();
  });
}

function describe(element: Element | null, attributes: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(attributes)) element?.setAttribute(name, value);
}
