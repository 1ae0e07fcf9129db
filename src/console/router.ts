// Finds the page for the current address. Links between pages change the address without loading anything.

import { signal } from '@preact/signals';

export const path = signal(location.pathname);
/** The part of the address after the `#`. Browsers do not send it to the server. */
export const hash = signal(location.hash.slice(1));

function follow(): void {
  path.value = location.pathname;
  hash.value = location.hash.slice(1);
}
addEventListener('popstate', follow);

/** Goes to another page of the console. */
export function go(to: string): void {
  if (to !== location.pathname) history.pushState(null, '', to);
  follow();
  scrollTo(0, 0);
}

/** Handles clicks on links between pages: a plain click changes the page; the browser handles all others, such as those for a new tab. */
export function onLink(event: MouseEvent): void {
  const link = event.currentTarget as HTMLAnchorElement;
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.pathname);
}
