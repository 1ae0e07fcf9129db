// The demo page: buttons for the operations of the client library.

import { askNow, beforeAsking, rememberUser } from './demo-arrived.js';
import { beginCall, mark, noteCall, refused, wasRefused } from './demo-calls.js';

const { sluice } = window;

const value = (id) => document.getElementById(id).value;

/** Numbers are sent as numbers. */
function typed(text) {
  return text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** The library has no word for it, and only this page changes it. */
const optedOutKey = 'sluice-demo:opted-out';
const isOptedOut = () => localStorage.getItem(optedOutKey) === '1';

/** Notes a call of this page's library that sends a message. */
function noteMessage(code, arrived) {
  if (isOptedOut()) return noteCall(code, undefined, 'not recorded: opted out');
  if (sluice.userId === undefined) return noteCall(code, undefined, 'waits for the script');
  noteCall(code, arrived);
}

/** Notes a call that sends nothing. */
function noteEffect(code, words) {
  noteCall(code, undefined, wasRefused() ? refused : words);
}

const operations = {
  track() {
    const call = mark();
    const properties = { [value('event-key') || 'amount']: typed(value('event-value')), call };
    sluice.track(value('event'), properties);
    const code = `track(${json(value('event'))}, ${json(properties)})`;
    if (wasRefused('an event is dropped')) return noteCall(code, undefined, refused);
    noteMessage(code, ({ events }) => events.some((event) => event.properties.call === call));
  },
  identify() {
    const identity = value('identity-value');
    const before = sluice.identity;
    const userIdBefore = sluice.userId;
    sluice.identify(identity);
    const { userId } = sluice;
    const code = `identify(${json(identity)})`;
    if (sluice.identity === before && userId === userIdBefore && userId !== undefined && !isOptedOut()) {
      return noteEffect(code, 'has this identity already');
    }
    noteMessage(code, ({ users }) =>
      users.some((user) => user.identity === identity && user.user_ids.includes(userId)),
    );
  },
  resetIdentity() {
    const before = sluice.userId;
    sluice.resetIdentity();
    noteCall('resetIdentity()', undefined, sluice.userId === before ? 'already anonymous' : 'a new user');
  },
  addUserProperties() {
    const call = mark();
    const properties = { [value('user-key') || 'plan']: typed(value('user-value')), last_call: call };
    sluice.addUserProperties(properties);
    noteMessage(`addUserProperties(${json(properties)})`, ({ users }) =>
      users.some((user) => user.properties.last_call === call),
    );
  },
  addEventProperties() {
    const properties = { [value('global-key')]: typed(value('global-value')) };
    sluice.addEventProperties(properties);
    noteEffect(`addEventProperties(${json(properties)})`, 'kept in a cookie');
  },
  removeEventProperty() {
    sluice.removeEventProperty(value('global-key'));
    noteCall(`removeEventProperty(${json(value('global-key'))})`, undefined, 'removed');
  },
  clearEventProperties() {
    sluice.clearEventProperties();
    noteCall('clearEventProperties()', undefined, 'none left');
  },
  flush() {
    sluice.flush();
    noteCall('flush()', undefined, 'sent at once');
  },
  optOut() {
    sluice.optOut();
    localStorage.setItem(optedOutKey, '1');
    noteCall('optOut()', undefined, 'nothing is recorded');
  },
  optIn() {
    sluice.optIn();
    localStorage.removeItem(optedOutKey);
    noteCall('optIn()', undefined, 'recording');
  },
};

function json(thing) {
  return JSON.stringify(thing);
}

for (const form of document.querySelectorAll('form[data-call]')) {
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    call(form.dataset.call);
  });
}
for (const button of document.querySelectorAll('button[data-call]')) {
  button.addEventListener('click', () => call(button.dataset.call));
}

function call(name) {
  beginCall();
  operations[name]();
  showUser();
  askNow();
}

function showUser() {
  const { userId, identity } = sluice;
  document.getElementById('user-id').textContent = userId ?? 'none';
  document.getElementById('identity').textContent = identity || 'none: anonymous';
  rememberUser(userId, identity);
}

beforeAsking(showUser);
askNow();

const blocked = document.getElementById('blocked');
setTimeout(() => {
  if (sluice.userId !== undefined) return;
  blocked.textContent =
    'The script /sdk.js has not loaded: is something blocking it? The calls wait in the page until it is there.';
  blocked.hidden = false;
}, 3000);
