// The calls that were made here, each with how long it took until ClickHouse could answer for it.

const callsMax = 50;
/** After this time the cause is something else than waiting. */
const waitMsMax = 20_000;

const list = document.getElementById('calls');
const waiting = new Set();

/** What the library has said in the console since a call began. */
let told = [];
const { warn } = console;
console.warn = (line, ...more) => {
  warn.call(console, line, ...more);
  if (String(line).startsWith('Sluice: ')) told.push(String(line).slice('Sluice: '.length));
};

let callCount = 0;

/** A value by which this page finds its own message again. */
export function mark() {
  callCount += 1;
  return `${Date.now().toString(36)}-${callCount}`;
}

/** To be called before the library is: what it says from now on belongs to the call that is noted next. */
export function beginCall() {
  told = [];
}

/** Whether the library has refused something of the call, as its words begin. */
export function wasRefused(beginning = '') {
  return told.some((line) => line.startsWith(beginning));
}

/**
 * Notes a call, with what the library said of it. `arrived` says, from what ClickHouse answered, whether the call
 * can be seen there; without it the call sends nothing, and `words` say what it does.
 */
export function noteCall(code, arrived, words) {
  const item = document.createElement('li');
  const chip = document.createElement('span');
  item.append(element('code', '', code), chip);
  for (const line of told.splice(0)) item.append(element('p', 'told', line));
  list.prepend(item);
  while (list.children.length > callsMax) list.lastElementChild.remove();
  document.getElementById('no-calls').hidden = true;
  if (arrived === undefined) return setChip(chip, words === refused ? 'bad' : '', words);
  setChip(chip, 'accent', 'on its way…');
  waiting.add({ chip, arrived, calledAt: performance.now(), isLate: false });
}

/** Shown for a call of which nothing is left. */
export const refused = 'refused';

/** Looks which calls have arrived. */
export function settleCalls(answer) {
  const now = performance.now();
  for (const call of waiting) {
    const tookMs = now - call.calledAt;
    if (call.arrived(answer)) setChip(call.chip, 'good', `queryable after ${(tookMs / 1000).toFixed(1)} s`);
    else if (call.chip.isConnected) {
      // Made offline, it may still come.
      if (tookMs > waitMsMax && !call.isLate) setChip(call.chip, 'warn', 'not there after 20 s');
      call.isLate = tookMs > waitMsMax;
      continue;
    }
    waiting.delete(call);
  }
}

export function isWaiting() {
  return [...waiting].some((call) => !call.isLate);
}

function element(name, className, text) {
  const built = document.createElement(name);
  built.className = className;
  built.textContent = text;
  return built;
}

function setChip(chip, tone, words) {
  chip.className = `chip ${tone}`;
  chip.textContent = words;
}
