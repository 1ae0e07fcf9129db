// Asks what has arrived from the users of this tab: once a second, more often while a call is on its way.

import { isWaiting, settleCalls } from './demo-calls.js';
import { showEvents, showUsers } from './demo-tables.js';

const { appId } = document.body.dataset;
const everyMs = 1000;
const everyMsWhileWaiting = 200;
/** Users that are asked for, the latest first. */
const idsMax = 5;
/** A request's line and headers have to fit 4 KiB. */
const queryCharsMax = 3000;

const userIds = [];
const identities = [];
const before = [];
let timer;
let asking = false;
let failures = 0;
/** How many questions may fail before the page says so. */
const failuresMax = 2;

/** From now on also asks for this user; an absent or empty name asks for none. */
export function rememberUser(userId, identity) {
  remember(userIds, userId);
  remember(identities, identity);
}

/** Calls `look` before each question. */
export function beforeAsking(listener) {
  before.push(listener);
}

/** Asks now instead of in a second. */
export function askNow() {
  clearTimeout(timer);
  void ask();
}

async function ask() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    for (const look of before) look();
    if (userIds.length > 0) await refresh();
    failures = 0;
    showFault();
  } catch (error) {
    failures += 1;
    if (failures > failuresMax) showFault(error.name === 'Error' ? error.message : noAnswer);
  } finally {
    asking = false;
    clearTimeout(timer);
    timer = setTimeout(ask, failures === 0 && isWaiting() ? everyMsWhileWaiting : everyMs);
  }
}

const noAnswer =
  'The service does not answer: is it running? What you do meanwhile is kept, and sent when it is back.';

/** Says once what is wrong; nothing when all is well. */
function showFault(words = '') {
  const shown = document.getElementById('fault');
  if (shown.textContent !== words) shown.textContent = words;
  shown.hidden = words === '';
  document.getElementById('freshness').textContent =
    words === '' ? '· the latest, refreshed each second' : '· not refreshed now';
}

async function refresh() {
  const query = new URLSearchParams({ app_id: appId });
  for (const id of userIds) query.append('user_id', id);
  for (const identity of identities) {
    query.append('identity', identity);
    // Long ones of earlier users are left out.
    if (String(query).length > queryCharsMax) break;
  }
  const reply = await fetch(`/demo/arrived?${query}`);
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.err.message);
  showEvents(answer.events);
  showUsers(answer.users);
  settleCalls(answer);
}

function remember(list, id) {
  if (id === undefined || id === '') return;
  const at = list.indexOf(id);
  if (at >= 0) list.splice(at, 1);
  list.unshift(id);
  list.length = Math.min(list.length, idsMax);
}

document.addEventListener('visibilitychange', () => void ask());
