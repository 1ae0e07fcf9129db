// The calls that were made here, each with how long it took until ClickHouse could answer for it.

const callsMax = 50;
/** Later than this, something else than waiting is the matter. */
const waitMsMax = 20_000;

const list = document.getElementById('calls');
const waiting = new Set();

let callCount = 0;

/** A value by which this page finds its own message again. */
export function mark() {
  callCount += 1;
  return `${Date.now().toString(36)}-${callCount}`;
}

/**
 * Notes a call. `arrived` says, from what ClickHouse answered, whether the call can be seen there; without it
 * the call sends nothing, and `words` say what it does.
 */
export function noteCall(code, arrived, words) {
  const item = document.createElement('li');
  const shown = document.createElement('code');
  shown.textContent = code;
  const chip = document.createElement('span');
  item.append(shown, chip);
  list.prepend(item);
  while (list.children.length > callsMax) list.lastElementChild.remove();
  document.getElementById('no-calls').hidden = true;
  if (arrived === undefined) return setChip(chip, '', words);
  setChip(chip, 'accent', 'on its way…');
  waiting.add({ chip, arrived, calledAt: performance.now() });
}

/** Looks which calls have arrived. */
export function settleCalls(answer) {
  const now = performance.now();
  for (const call of waiting) {
    const tookMs = now - call.calledAt;
    if (call.arrived(answer)) setChip(call.chip, 'good', `queryable after ${(tookMs / 1000).toFixed(1)} s`);
    else if (tookMs > waitMsMax) setChip(call.chip, 'warn', 'not there after 20 s');
    else continue;
    waiting.delete(call);
  }
}

export function isWaiting() {
  return waiting.size > 0;
}

function setChip(chip, tone, words) {
  chip.className = `chip ${tone}`;
  chip.textContent = words;
}
