// Replaces storage and cookies, which Redoc uses and browsers refuse to a document without an origin. The storage starts empty and lasts as
// long as the page; cookies keep nothing. Imported first, since Redoc reads both when it is loaded.

for (const name of ['localStorage', 'sessionStorage']) {
  const kept = new Map<string, string>();
  const storage: Partial<Storage> = {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => void kept.set(key, value),
    removeItem: (key) => void kept.delete(key),
    clear: () => kept.clear(),
  };
  Object.defineProperty(window, name, { value: storage });
}
Object.defineProperty(document, 'cookie', { get: () => '', set: () => {} });

// Redoc builds its search index when the browser is idle. In a frame that paints nothing new, that moment may never come, and Redoc would
// say "Loading..." for ever.
window.requestIdleCallback = (work) =>
  Number(setTimeout(() => work({ didTimeout: false, timeRemaining: () => 10 }), 0));
window.cancelIdleCallback = (handle) => clearTimeout(handle);
