// The demo page: buttons for the operations of the client library, and what arrived of this user, asked once a
// second, more often while a call is on its way.

import { isWaiting, noteCall, settleCalls } from './demo-calls.js';
import { showEvents, showUsers } from './demo-tables.js';

const { sluice } = window;
const { appId } = document.body.dataset;
const everyMs = 1000;
const everyMsWhileWaiting = 200;
/** Users that this tab has been, the latest first. */
const idsMax = 5;

const value = (id) => document.getElementById(id).value;

/** Numbers are sent as numbers. */
function typed(text) {
  return text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
}

let callCount = 0;
/** A value by which this page finds its own message again. */
function mark() {
  callCount += 1;
  return `${Date.now().toString(36)}-${callCount}`;
}

/** The library has no word for it, and only this page changes it. */
const optedOutKey = 'sluice-demo:opted-out';
const isOptedOut = () => localStorage.getItem(optedOutKey) === '1';

/** Notes a call that sends a message. */
function noteSent(code, arrived) {
  if (isOptedOut()) return noteCall(code, undefined, 'not recorded: opted out');
  if (sluice.userId === undefined) return noteCall(code, undefined, 'waits for the script');
  noteCall(code, arrived);
}

const operations = {
  track() {
    const call = mark();
    const properties = { [value('event-key') || 'amount']: typed(value('event-value')), call };
    sluice.track(value('event'), properties);
    noteSent(`track(${json(value('event'))}, ${json(properties)})`, ({ events }) =>
      events.some((event) => event.properties.call === call),
    );
  },
  identify() {
    const identity = value('identity-value');
    const before = sluice.identity;
    const userIdBefore = sluice.userId;
    sluice.identify(identity);
    const { userId } = sluice;
    const code = `identify(${json(identity)})`;
    if (sluice.identity === before && userId === userIdBefore && userId !== undefined && !isOptedOut()) {
      const words = identity === before ? 'has this identity already' : 'refused, see the console';
      return noteCall(code, undefined, words);
    }
    noteSent(code, ({ users }) =>
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
    noteSent(`addUserProperties(${json(properties)})`, ({ users }) =>
      users.some((user) => user.properties.last_call === call),
    );
  },
  addEventProperties() {
    const properties = { [value('global-key')]: typed(value('global-value')) };
    sluice.addEventProperties(properties);
    noteCall(`addEventProperties(${json(properties)})`, undefined, 'kept in a cookie');
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
  operations[name]();
  showUser();
  // What was to be asked in a second is asked sooner.
  clearTimeout(timer);
  void ask();
}

const userIds = [];
const identities = [];

function remember(list, id) {
  if (id === undefined || id === '') return;
  const at = list.indexOf(id);
  if (at >= 0) list.splice(at, 1);
  list.unshift(id);
  list.length = Math.min(list.length, idsMax);
}

function showUser() {
  const { userId, identity } = sluice;
  document.getElementById('user-id').textContent = userId ?? 'none';
  document.getElementById('identity').textContent = identity || 'none: anonymous';
  remember(userIds, userId);
  remember(identities, identity);
}

let timer;
let asking = false;

async function ask() {
  if (asking || document.hidden) return;
  asking = true;
  let answered = true;
  try {
    showUser();
    if (userIds.length > 0) await refresh();
  } catch {
    answered = false;
    document.getElementById('freshness').textContent = '· the service does not answer';
  } finally {
    asking = false;
    clearTimeout(timer);
    timer = setTimeout(ask, answered && isWaiting() ? everyMsWhileWaiting : everyMs);
  }
}

async function refresh() {
  const query = new URLSearchParams({ app_id: appId });
  for (const id of userIds) query.append('user_id', id);
  for (const identity of identities) query.append('identity', identity);
  const reply = await fetch(`/demo/arrived?${query}`);
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.err.message);
  showEvents(answer.events);
  showUsers(answer.users);
  settleCalls(answer);
  document.getElementById('freshness').textContent = '· the latest, refreshed each second';
}

document.addEventListener('visibilitychange', () => void ask());
void ask();

const blocked = document.getElementById('blocked');
setTimeout(() => {
  if (sluice.userId !== undefined) return;
  blocked.textContent =
    'The script /sdk.js has not loaded: is something blocking it? The calls wait in the page until it is there.';
  blocked.hidden = false;
}, 3000);
