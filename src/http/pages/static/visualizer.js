// The Event Visualizer's page: the form, the state of the connection in words, the tools of the list.

import { connect } from './visualizer-connection.js';
import { addRows } from './visualizer-list.js';

/** While paused, so many messages are kept; older ones are dropped. */
const heldMax = 500;

const by = (id) => document.getElementById(id);
const [form, list, status] = [by('pair'), by('list'), by('status')];

let connection;
let appId = '';
let held = [];
let counts = {};
let missed = 0;
/** Since when a page that was paired has had no connection. */
let lostAt;

function setState(state, words) {
  document.body.dataset.state = state;
  status.textContent = words;
}

function showText(id, words) {
  by(id).textContent = words ?? '';
  by(id).hidden = words === undefined;
}

function showForm(problem) {
  form.hidden = false;
  by('connect').disabled = false;
  by('end').hidden = true;
  by('again').hidden = true;
  showText('problem', problem);
}

const heard = {
  connecting: () => setState('connecting', 'Connecting…'),
  paired: ({ app_id: pairedApp }) => {
    appId = pairedApp;
    // The list keeps its scroll position when the connection is back.
    const focusIsFree = !form.hidden;
    form.hidden = true;
    by('session').hidden = false;
    by('end').hidden = false;
    by('again').hidden = true;
    by('environment').textContent = `Environment ${appId}`;
    showText(
      'notice',
      lostAt &&
        `No connection from ${lostAt} to ${clockTime()}: what the device sent meanwhile is not shown.`,
    );
    lostAt = undefined;
    setWaiting();
    if (focusIsFree) by('pause').focus();
  },
  batch: ({ messages, at, left_out: leftOut }) => {
    setState('live', 'Paired · live');
    for (const { answer } of messages) counts[answer?.status] = (counts[answer?.status] ?? 0) + 1;
    missed += leftOut;
    const batch = messages.map((message) => ({ message, at }));
    if (isPaused()) held = [...held, ...batch].slice(-heldMax);
    else addRows(list, batch);
    refresh();
  },
  missed: ({ count }) => {
    missed += count;
    refresh();
  },
  gap: () =>
    showText('notice', 'The service was cut off from Redis for a moment: some events may be missing here.'),
  lost: ({ stopping, unavailable, wasPaired, retryInMs }) => {
    if (wasPaired) lostAt ??= clockTime();
    // Another code or token may be tried meanwhile.
    else by('connect').disabled = false;
    const why = stopping
      ? 'The service is stopping.'
      : unavailable
        ? 'The service cannot reach Redis now.'
        : wasPaired
          ? 'The connection was lost.'
          : 'The service does not answer.';
    setState('lost', `${why} Connecting again in ${Math.ceil(retryInMs / 1000)} s…`);
  },
  refused: ({ reason, message }) => {
    lostAt = undefined;
    setState('refused', 'Not paired');
    by('session').hidden = list.children.length === 0;
    showForm(message);
    if (reason === 'forbidden' || reason === 'signed_out') showToken(true);
    by(reason === 'wrong_code' || by('token-field').hidden ? 'code' : 'token').select();
  },
  ended: ({ message }) => {
    lostAt = undefined;
    setState('ended', 'Pairing ended');
    showText('notice', message);
    by('end').hidden = true;
    by('again').hidden = false;
    by('again').focus();
  },
};

function clockTime() {
  return new Date().toTimeString().slice(0, 8);
}

function setWaiting() {
  if (list.children.length === 0) setState('waiting', 'Paired · waiting for events');
  else setState('live', 'Paired · live');
}

function isPaused() {
  return by('pause').getAttribute('aria-pressed') === 'true';
}

function refresh() {
  by('empty').hidden = list.children.length > 0 || held.length > 0;
  list.hidden = list.children.length === 0;
  by('pause').textContent = !isPaused()
    ? 'Pause'
    : held.length > 0
      ? `Resume (${held.length} new)`
      : 'Resume';
  const parts = ['stored', 'repeat', 'limited', 'rejected']
    .filter((name) => counts[name] > 0)
    .map((name) => `${counts[name]} ${name}`);
  if (missed > 0) parts.push(`${missed} not shown: too many at once`);
  by('tally').textContent = parts.join(' · ');
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  connection?.leave();
  showText('problem');
  by('connect').disabled = true;
  // Without a token the service asks who is signed in to the console.
  const token = by('token-field').hidden ? undefined : by('token').value;
  connection = connect(token, by('code').value, (said) => heard[said.type]?.(said));
});

by('pause').addEventListener('click', () => {
  by('pause').setAttribute('aria-pressed', String(!isPaused()));
  if (!isPaused()) addRows(list, held.splice(0));
  refresh();
});

by('clear').addEventListener('click', () => {
  list.replaceChildren();
  held = [];
  counts = {};
  missed = 0;
  showText('notice');
  refresh();
});

by('end').addEventListener('click', () => {
  connection.end();
});

by('again').addEventListener('click', () => {
  showForm();
  setState('', 'Not paired');
  showText('notice');
  by('code').value = '';
  by('code').focus();
});

by('code').value = new URLSearchParams(location.hash.slice(1)).get('code') ?? '';
if (document.body.dataset.administration === 'off') {
  by('off').hidden = false;
  form.hidden = true;
  setState('refused', 'Off');
} else {
  by('token').focus();
}

/** A person who is signed in to the console needs no token. */
function showToken(isNeeded) {
  by('token-field').hidden = !isNeeded;
  by('token-place').hidden = !isNeeded;
  by('token').required = isNeeded;
}

async function findPerson() {
  try {
    const reply = await fetch('/admin/v1/session');
    return reply.ok ? (await reply.json()).person : null;
  } catch {
    return null;
  }
}

void findPerson().then((person) => {
  if (person === null || by('token').value !== '') return;
  showText('person', `You are signed in as ${person.email}.`);
  showToken(false);
  if (document.body.dataset.administration === 'off') {
    by('off').hidden = true;
    form.hidden = false;
    setState('', 'Not paired');
  }
  if (!form.hidden) by('code').focus();
});
