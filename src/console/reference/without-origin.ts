// What the viewer expects of a browser, and what a document without an origin is refused: storage and cookies. Here they are
// empty and keep nothing. Imported first, since the viewer reads them when it is loaded.

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

// The viewer makes the index of its search when the browser has nothing else to do. A frame that paints nothing new may
// wait for that for ever, and says "Loading..." meanwhile.
window.requestIdleCallback = (work) =>
  Number(setTimeout(() => work({ didTimeout: false, timeRemaining: () => 10 }), 0));
window.cancelIdleCallback = (handle) => clearTimeout(handle);
