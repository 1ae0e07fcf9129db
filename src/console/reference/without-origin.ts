// Replaces storage and cookies: Redoc uses them, and browsers refuse them to a document without an origin. Storage begins empty and
// lasts as long as the page; cookies keep nothing. Imported first, since Redoc reads both when it is loaded.

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

// Redoc makes its search index when the browser is idle. For a frame that paints nothing new that moment may never come, and Redoc
// would say "Loading..." for ever.
window.requestIdleCallback = (work) =>
  Number(setTimeout(() => work({ didTimeout: false, timeRemaining: () => 10 }), 0));
window.cancelIdleCallback = (handle) => clearTimeout(handle);
