// Lists of users as people paste and save them: whom each one names, and when the reader asks or refuses instead.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type ListChoices,
  readListFile,
  readUserList,
  type UserKind,
  type UserList,
} from '../../src/parsing/csv/user-list.js';

function namesIn(list: UserList): (string | undefined)[] {
  return list.users.map((user) => Object.values(user)[0]);
}

/** Reads a file, and checks that the same text is read alike when it is pasted. */
function read(file: string | Uint8Array, kind: UserKind = 'identity', choices: ListChoices = {}): UserList {
  const bytes = typeof file === 'string' ? Buffer.from(file) : file;
  const found = readListFile(bytes);
  assert.ok('text' in found, JSON.stringify(found));
  const list = readUserList(found.text, kind, choices);
  if (typeof file === 'string') assert.deepEqual(readUserList(file, kind, choices), list);
  return list;
}

const named: readonly (readonly [
  what: string,
  text: string | Uint8Array,
  names: string[],
  kind?: UserKind,
])[] = [
  [
    'semicolons, with a comma in a cell',
    'email;name\nada@example.com;Lovelace, Ada\nbob@example.com;Bob\n',
    ['ada@example.com', 'bob@example.com'],
  ],
  [
    'a cell in quotes with a line break',
    'email,note\nbob@example.com,"called twice;\neve@example.com, his sister"\n',
    ['bob@example.com'],
  ],
  [
    'one column, whose names have a semicolon or a comma',
    'identity\ntenant1;ada\nDoe, John\n',
    ['tenant1;ada', 'Doe, John'],
  ],
  [
    'one column without a heading',
    ' ada@example.com \r\n\nDoe, John\n"x"\n',
    ['ada@example.com', 'Doe, John', 'x'],
  ],
  [
    'tabs, and an empty cell before the name',
    'n\tE-Mail\n\tada@example.com\n2\tbob@example.com',
    ['ada@example.com', 'bob@example.com'],
  ],
  [
    'the line by which Excel knows the separator',
    '\ufeffsep=;\r\nname;EMAIL\r\nLovelace, Ada;ada@example.com\r\n',
    ['ada@example.com'],
  ],
  [
    'a byte order mark, and blanks around headings and before quotes',
    '\ufeffname, Email \n"Lovelace, Ada", "ada@example.com" \n',
    ['ada@example.com'],
  ],
  [
    'lines that end with CR',
    'email;n\rada@example.com;1\r\rbob@example.com;2\r',
    ['ada@example.com', 'bob@example.com'],
  ],
  [
    'UTF-16, little endian',
    Buffer.from('\ufeffemail;name\njörgen@example.com;J\n', 'utf16le'),
    ['jörgen@example.com'],
  ],
  [
    'UTF-16, big endian',
    Buffer.from('\ufeffemail;name\njörgen@example.com;J\n', 'utf16le').swap16(),
    ['jörgen@example.com'],
  ],
  [
    'separators at the ends of all lines, and rows of them alone',
    'email;name;;\nada@example.com;Ada;;\n;;;\n',
    ['ada@example.com'],
  ],
  [
    'quotes within a cell, and decimal commas',
    'email;name;amount\na@example.com;Ada "Queen" L;801,40\nb@example.com;"B ""x"" B";1,5\n',
    ['a@example.com', 'b@example.com'],
  ],
  ['user ids', 'User ID,n\n17,1\n"9007199254740991",2\n17,3\n', ['17', '9007199254740991'], 'user_id'],
  ['a heading alone', 'email;name\n', []],
];

test('names the users of the column, record by record', () => {
  for (const [what, text, names, kind] of named) {
    const list = read(text, kind);
    assert.deepEqual([list.fault, list.question, list.bad], [undefined, undefined, []], what);
    assert.deepEqual(namesIn(list), names, what);
  }
});

test('leaves out records that name nobody, each with its line and why', () => {
  const rows: readonly (readonly [
    text: string,
    names: string[],
    bad: (readonly [line: number, why: RegExp])[],
    kind?: UserKind,
  ])[] = [
    [
      'email,name\na@example.com,Lovelace, Ada\n\nb@example.com\nc@example.com,C\n,D\n',
      ['c@example.com'],
      [
        [2, /has 3 cells, but the first line has 2/],
        [4, /has 1 cell,/],
        [6, /names no user/],
      ],
    ],
    [
      'user_id\n1.5E+15\n007\n9007199254740992\n1,000\nada\n5\n',
      ['5'],
      [2, 3, 4, 5, 6].map((line) => [line, /not a user id/] as const),
      'user_id',
    ],
    ['email\nj\ufffdrgen@example.com\n', [], [[2, /a character that was lost/]]],
    [`x@example.com\n${'x'.repeat(256)}\n`, ['x@example.com'], [[2, /more than 255/]]],
    [
      'email\nada@example.com;\nbob@example.com\tBob\n',
      [],
      [
        [2, /several cells/],
        [3, /several cells/],
      ],
    ],
    ['ada@example.com\nbob@example.com;Bob\n', ['ada@example.com'], [[2, /several cells/]]],
    [
      'email,n\nada@example.com\u200b,1\n"bob@example.com\neve@example.com",2\nj\u200crg@example.com,3\n',
      ['j\u200crg@example.com'],
      [
        [2, /an invisible character \(U\+200B\)/],
        [4, /an invisible character \(U\+000A\)/],
      ],
    ],
    [
      'a@example.com\u2028b@example.com\nc@example.com\u0085d@example.com\n',
      [],
      [
        [1, /U\+2028/],
        [2, /U\+0085/],
      ],
    ],
    [
      'email,n\na@example.com,1\n\ufeffemail,n\nemail,n\nb@example.com,2',
      ['a@example.com', 'b@example.com'],
      [
        [3, /repeats the first line/],
        [4, /repeats the first line/],
      ],
    ],
  ];
  for (const [text, names, bad, kind] of rows) {
    const list = read(text, kind);
    assert.deepEqual(namesIn(list), names, text);
    assert.deepEqual(
      list.bad.map(({ line }) => line),
      bad.map(([line]) => line),
      text,
    );
    for (const [at, [, why]] of bad.entries()) assert.match(list.bad[at]?.why ?? '', why);
  }
});

test('names nobody before a person has said which column has the users', () => {
  const asked: readonly (readonly [text: string, kind?: UserKind])[] = [
    ['Kunde;Mailadresse\nAda;ada@example.com\n'],
    ['Correo electrónico,Nombre\nada@example.com,Ada\n'],
    ['ada@example.com\tAda\nbob@example.com\tBob\n'],
    // One file has two columns that may be meant, the next two a column of another kind.
    ['identity;email\nada;ada@example.com\n'],
    ['user_id\n17\n'],
    ['email\na@example.com\n', 'user_id'],
  ];
  for (const [text, kind] of asked) {
    const list = read(text, kind);
    assert.deepEqual([list.question, list.users], ['column', []], text);
  }
  const text = 'Kunde;Mailadresse\nAda;ada@example.com\nBob;bob@example.com\n';
  const second = read(text, 'identity', { column: 1 });
  assert.deepEqual([second.question, second.users], ['heading', []]);
  assert.deepEqual(namesIn(read(text, 'identity', { column: 1, isHeading: true })), [
    'ada@example.com',
    'bob@example.com',
  ]);
  assert.deepEqual(
    namesIn(read('a@example.com;A\nb@example.com;B', 'identity', { column: 0, isHeading: false })),
    ['a@example.com', 'b@example.com'],
  );
  // Files with one column whose first line is unlike all others.
  assert.equal(read('Mailadresse\nada@example.com\nbob@example.com\n').question, 'heading');
  assert.equal(read('Kundennummer\n17\n18\n', 'user_id').question, 'heading');
  assert.deepEqual(namesIn(read('Kundennummer\n17\n18\n', 'user_id', { isHeading: true })), ['17', '18']);
  const bars = 'email|name\nada@example.com|Ada\n';
  assert.equal(read(bars).question, 'heading');
  assert.deepEqual(namesIn(read(bars, 'identity', { separator: '|' })), ['ada@example.com']);
  // A person may say that names contain separators.
  assert.deepEqual(namesIn(read('a;b\nDoe, John;\n', 'identity', { separator: 'none', isHeading: false })), [
    'a;b',
    'Doe, John;',
  ]);
});

test('refuses bytes that are not text, or not in the chosen encoding, and says where', () => {
  const faults: readonly (readonly [bytes: Uint8Array, fault: RegExp, mayBeWindows1252: boolean])[] = [
    [
      Buffer.from('email\nada@example.com\nj\xf6rgen@example.com\n', 'latin1'),
      /^Line 3 is not UTF-8\.$/,
      true,
    ],
    [
      Buffer.concat([Buffer.from('\ufeffa\nb', 'utf16le'), Buffer.from([0])]),
      /^Line 2 is not UTF-16\.$/,
      false,
    ],
    [Buffer.from('PK\u0003\u0004 [Content_Types].xml'), /an Excel workbook/, false],
    [Buffer.from('PK\u0003\u0004 list.csv'), /a zip archive/, false],
    [Buffer.from([0x1f, 0x8b, 8]), /compressed by gzip/, false],
  ];
  for (const [bytes, fault, mayBeWindows1252] of faults) {
    const found = readListFile(bytes);
    assert.ok('fault' in found);
    assert.match(found.fault, fault);
    assert.equal(found.mayBeWindows1252, mayBeWindows1252);
  }
  const asked = readListFile(Buffer.from('email\nj\xf6rgen\x80@example.com', 'latin1'), 'windows-1252');
  assert.deepEqual(asked, { text: 'email\njörgen€@example.com' });
  assert.ok(
    'fault' in readListFile(Buffer.from([0x61, 0x81]), 'windows-1252'),
    'a byte that the encoding does not have',
  );
  const unread: readonly (readonly [text: string, fault: RegExp])[] = [
    [Buffer.from('email\nada@example.com\n', 'utf16le').toString('latin1'), /NUL characters.*UTF-16 without/],
    ['email,note\na@example.com,"called\nb@example.com,x\n', /quote.*never closed/],
    [
      'email,note\na@example.com,"one\nb@example.com,two\nc@example.com,"three"\n',
      /after a closing quote on line 4/,
    ],
  ];
  for (const [text, fault] of unread) {
    const list = readUserList(text, 'identity');
    assert.match(list.fault ?? '', fault);
    assert.deepEqual(list.users, []);
  }
});

test('counts users that are named twice', () => {
  const { users, repeated } = read('identity\nada\n ada \nAda\nada\n');
  assert.deepEqual([users, repeated], [[{ identity: 'ada' }, { identity: 'Ada' }], 2]);
});
