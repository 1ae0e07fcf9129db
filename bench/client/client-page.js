// The page in which the bench measures the client library. Each function measures one thing and returns figures. The library sends only
// during `await`s. The page is isolated from other sites, so that its clock has a resolution of microseconds.

const measured = {};
window.measured = measured;

const appId = '1';
const properties = { product: 'Espresso machine', price: 249.5, currency: 'EUR', quantity: 1 };
let warnings = 0;
// Counts warnings instead of printing them, since printing is not a cost of the library.
console.warn = () => {
  warnings++;
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Starts the script; returns the milliseconds until the library records, including compilation. */
measured.start = (script) => {
  const element = document.createElement('script');
  element.text = script;
  const beganMs = performance.now();
  document.head.append(element);
  window.sluice.load(appId, { baseUrl: location.origin, pageViews: false });
  const readyMs = performance.now() - beganMs;
  if (window.sluice.userId === undefined) throw new Error('the library does not record');
  return readyMs;
};

measured.waiting = () => Object.keys(localStorage).filter((key) => key.includes(':q:')).length;

/** Tracks events until this many are waiting in storage. The library must not be able to send any meanwhile. */
measured.fill = (count) => {
  for (let n = measured.waiting(); n < count; n++) window.sluice.track('Product Viewed', properties);
  return measured.waiting();
};

/** The measured calls, as a page makes them. */
const calls = {
  track: (n) => window.sluice.track('Product Viewed', { ...properties, quantity: n }),
  identify: (n) => window.sluice.identify(`user-${n}@example.com`),
  addUserProperties: (n) => window.sluice.addUserProperties({ plan: 'free', visits: n }),
  addEventProperties: (n) => window.sluice.addEventProperties({ theme: 'dark', turn: n }),
};

let turn = 0;

/** Microseconds per call of `count` calls in a row, and of the longest call. */
measured.callsInARow = (name, count) => {
  const call = calls[name];
  let longestMs = 0;
  const beganMs = performance.now();
  let lastMs = beganMs;
  for (let n = 0; n < count; n++) {
    call(turn++);
    const nowMs = performance.now();
    longestMs = Math.max(longestMs, nowMs - lastMs);
    lastMs = nowMs;
  }
  return { us: ((lastMs - beganMs) / count) * 1000, longestUs: longestMs * 1000 };
};

/** Microseconds of single calls, each after a pause in which caches go cold. */
measured.callsApart = async (name, count, pauseMs) => {
  const us = [];
  for (let n = 0; n < count; n++) {
    await pause(pauseMs);
    us.push(measured.callsInARow(name, 1).us);
  }
  return us;
};

/** Milliseconds of `count` events in a row, and of the longest task from the first event until all are sent. */
measured.manyTracks = async (count) => {
  const tasks = [];
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries()));
  observer.observe({ type: 'longtask' });
  await pause(100);
  const beganMs = performance.now();
  for (let n = 0; n < count; n++) window.sluice.track('Product Viewed', properties);
  const ms = performance.now() - beganMs;
  await pause(0);
  for (let n = 0; n < 100 && measured.waiting() > 0; n++) {
    await window.sluice.flush();
    await pause(50);
  }
  if (measured.waiting() > 0) throw new Error(`${measured.waiting()} are not sent`);
  await pause(100);
  for (const entry of observer.takeRecords()) tasks.push(entry);
  const allMs = tasks.filter(({ startTime }) => startTime + ms > beganMs - 50).map((task) => task.duration);
  return { ms, longestTaskMs: Math.max(ms, ...allMs) };
};

const elements = 300_000;
const large = {
  'an array for properties': () => Array.from({ length: elements }, (_, n) => n),
  'an array for a value': () => ({ list: Array.from({ length: elements }, (_, n) => n) }),
  'an object of texts for properties': () => keyed((n) => `value ${n}`),
  'an object of objects for properties': () => keyed(() => ({})),
};

function keyed(value) {
  const object = {};
  for (let n = 0; n < elements; n++) object[`key ${n}`] = value(n);
  return object;
}

/** Milliseconds and number of warnings of an event with 300,000 elements in its properties. */
measured.largeProperties = async (form) => {
  const input = large[form]();
  // Gives V8 time to collect the garbage from building it.
  await pause(1_000);
  const warningsBefore = warnings;
  const beganMs = performance.now();
  window.sluice.track('Large', input);
  return { ms: performance.now() - beganMs, warnings: warnings - warningsBefore };
};

measured.largeForms = () => Object.keys(large);

/** How many characters a waiting event takes in storage, beyond its properties as JSON. */
measured.storedCharacters = (count) => {
  const before = charactersWaiting();
  for (let n = 0; n < count; n++) window.sluice.track('Product Viewed', properties);
  return (charactersWaiting() - before) / count - JSON.stringify(properties).length;
};

function charactersWaiting() {
  let characters = 0;
  for (const key of Object.keys(localStorage)) {
    if (key.includes(':q:')) characters += key.length + localStorage.getItem(key).length;
  }
  return characters;
}
