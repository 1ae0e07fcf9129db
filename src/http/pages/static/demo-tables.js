// What ClickHouse answered, as tables. Everything in it comes from outside and is only ever set as text.

let known = new Set();

/** Shows the events, the newest first. */
export function showEvents(events) {
  const before = known;
  known = new Set(events.map((event) => event.event_id));
  const rows = events.map((event) => {
    const row = document.createElement('tr');
    if (before.size > 0 && !before.has(event.event_id)) row.className = 'fresh';
    row.append(
      timeCell(event.received_at),
      cell('name', event.event),
      event.identity === '' ? cell('mono', event.user_id) : cell('', event.identity),
      propertiesCell(event.properties),
    );
    return row;
  });
  fill('arrived', rows, 4, 'Nothing yet.');
}

/** Shows the users, merged as they are now. */
export function showUsers(users) {
  const rows = users.map((user) => {
    const row = document.createElement('tr');
    row.append(
      cell('', user.identity === '' ? 'anonymous' : user.identity),
      cell('mono', user.user_ids.join(', ')),
      propertiesCell(user.properties),
    );
    return row;
  });
  fill('users', rows, 3, 'No users yet.');
}

/** In the reader's zone; in UTC on hover. */
function timeCell(text) {
  const made = cell('mono', localTime(text));
  made.title = `${text.slice(0, 19)} UTC`;
  return made;
}

/** ClickHouse's times are in UTC. */
function localTime(text) {
  const date = new Date(`${text.replace(' ', 'T')}Z`);
  const two = (number) => String(number).padStart(2, '0');
  const millis = String(date.getMilliseconds()).padStart(3, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${millis}`;
}

function fill(id, rows, columns, otherwise) {
  const body = document.getElementById(id);
  if (rows.length > 0) return body.replaceChildren(...rows);
  const empty = cell('muted', otherwise);
  empty.colSpan = columns;
  const row = document.createElement('tr');
  row.append(empty);
  body.replaceChildren(row);
}

function propertiesCell(properties) {
  const built = document.createElement('td');
  for (const [key, value] of Object.entries(properties)) {
    const pair = document.createElement('span');
    pair.className = 'pair';
    pair.append(text('bdi', 'key', `${key}: `), text('bdi', '', value));
    built.append(pair);
  }
  return built;
}

function cell(className, value) {
  const built = document.createElement('td');
  built.append(text('bdi', className, value));
  return built;
}

function text(name, className, value) {
  const built = document.createElement(name);
  built.className = className;
  built.textContent = value;
  return built;
}
