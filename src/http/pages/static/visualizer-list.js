// The list of messages, the newest first and bounded. Everything in a message comes from outside and is only
// ever set as text.

const rowsMax = 500;
const previewCharsMax = 200;

// Maps, since a message may name a property that every object has.
const kinds = new Map([
  ['event', ['Event', 'accent']],
  ['identify', ['Identify', 'plain']],
  ['user_properties', ['User', 'plain']],
]);

const answers = new Map([
  ['stored', ['stored', 'good']],
  ['repeat', ['repeat', 'plain']],
  ['limited', ['limited', 'warn']],
  ['rejected', ['rejected', 'bad']],
]);

/** Puts messages on top of the list, in the order in which they were sent, and drops the oldest rows. */
export function addRows(list, batch) {
  for (const { message, at } of batch.slice(-rowsMax)) list.prepend(row(message, at));
  while (list.children.length > rowsMax) list.lastElementChild.remove();
}

function row(message, at) {
  const item = element('li', 'fresh');
  const details = element('details');
  const summary = element('summary');
  const [kind, kindTone] = kinds.get(message.type) ?? ['Unknown', 'bad'];
  const [answer, answerTone] = answers.get(message.answer?.status) ?? ['no answer', 'warn'];
  summary.append(
    element('span', 'time', timeOf(message, at)),
    element('span', `chip ${kindTone}`, kind),
    outside('name', nameOf(message)),
    outside('who', whoOf(message), 'User'),
    outside('session', text(message.session_id), 'Session'),
    outside('preview', previewOf(message)),
    element('span', `chip ${answerTone}`, answer),
  );
  details.append(summary);
  details.addEventListener('toggle', () => {
    if (details.open && details.children.length === 1) details.append(detail(message, at));
  });
  item.append(details);
  return item;
}

function detail(message, at) {
  const box = element('div', 'detail');
  const facts = element('div');
  const { answer } = message;
  facts.append(
    element('h3', '', 'Message'),
    definitions([
      ['Answer', answer?.status],
      ['Reason', answer?.message],
      ['Code', answer?.code],
      ['Field', answer?.field],
      ['Retry after', answer?.retry_after === undefined ? undefined : `${answer.retry_after} s`],
      [message.type === 'event' ? 'Event' : 'Type', message.type === 'event' ? message.event : message.type],
      ['Captured', message.autocaptured === true ? 'automatically' : undefined],
      ['Identity', message.identity],
      ['User id', message.user_id],
      ['Session', message.session_id],
      ['Device time', message.time],
      ['Received', at],
      ['Message id', message.id],
    ]),
  );
  box.append(facts, propertiesOf(message));
  return box;
}

function propertiesOf({ properties }) {
  const box = element('div');
  box.append(element('h3', '', 'Properties'));
  const entries = isObject(properties) ? Object.entries(properties) : [];
  if (entries.length === 0) {
    box.append(
      element('p', 'muted', properties === undefined || isObject(properties) ? 'None.' : text(properties)),
    );
    return box;
  }
  const table = element('table');
  for (const [key, value] of entries) {
    const line = table.insertRow();
    const head = document.createElement('th');
    head.scope = 'row';
    head.append(outside('', key));
    const cell = document.createElement('td');
    cell.append(outside('mono', text(value)));
    const kind = element('td', 'kind', typeName(value));
    line.append(head, cell, kind);
  }
  box.append(table);
  return box;
}

function definitions(pairs) {
  const list = element('dl');
  for (const [name, value] of pairs) {
    if (value === undefined || value === null) continue;
    const shown = document.createElement('dd');
    shown.append(outside('', text(value)));
    list.append(element('dt', '', name), shown);
  }
  return list;
}

function nameOf({ type, event, identity }) {
  if (type === 'event') return text(event);
  if (type === 'identify') return `as ${text(identity)}`;
  return type === 'user_properties' ? 'Set properties' : text(type);
}

function whoOf({ identity, user_id: userId }) {
  if (identity !== undefined) return text(identity);
  return userId === undefined ? '' : `user ${text(userId)}`;
}

function previewOf({ properties }) {
  if (!isObject(properties)) return '';
  let preview = '';
  for (const [key, value] of Object.entries(properties)) {
    preview += `${preview === '' ? '' : ', '}${key}: ${text(value)}`;
    if (preview.length > previewCharsMax) return preview.slice(0, previewCharsMax);
  }
  return preview;
}

function timeOf({ time }, at) {
  const date = new Date(typeof time === 'string' ? time : at);
  if (Number.isNaN(date.getTime())) return text(time);
  const two = (number) => String(number).padStart(2, '0');
  const millis = String(date.getMilliseconds()).padStart(3, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${millis}`;
}

function text(value) {
  if (typeof value === 'string') return value;
  return value === undefined ? '' : JSON.stringify(value);
}

function typeName(value) {
  if (Array.isArray(value)) return 'list';
  return typeof value === 'string' ? 'text' : value === null ? 'null' : typeof value;
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Text from outside: its direction must not change the text around it. */
function outside(className, value, title = '') {
  const built = element('bdi', className, value);
  if (title !== '') built.title = title;
  return built;
}

function element(name, className = '', content = undefined) {
  const built = document.createElement(name);
  if (className !== '') built.className = className;
  if (content !== undefined) built.textContent = content;
  return built;
}
