// Owns the little that this server must know of a statement: of what kind it is, where its FORMAT clause
// is, where the data of an INSERT begins. The engine parses; this only finds the places where a clause has
// to be put in. Pure functions over text; positions are indexes into it.

import { type Token, TokenCursor, tokens } from './sql-tokens.js';

export type Statement =
  /** A query whose result may be large: it can be written to a pipe with INTO OUTFILE. */
  | SelectText
  | InsertText
  /** Everything else; SET and the like change the session they run in. */
  | { readonly kind: 'other' | 'session' | 'kill'; readonly end: number }
  | { readonly kind: 'empty' }
  | { readonly kind: 'refused'; readonly code: number; readonly type: string; readonly message: string };

export type SelectText = {
  readonly kind: 'select';
  /** The keyword of its FORMAT clause. */
  readonly format: Token | undefined;
  readonly end: number;
};

export type InsertText = {
  readonly kind: 'insert';
  /** Behind `INSERT INTO target (columns)`: where `SETTINGS` and `FROM INFILE` go. */
  readonly targetEnd: number;
  /** What stands in an own SETTINGS clause, without the keyword. */
  readonly settings: { readonly start: number; readonly end: number } | undefined;
  readonly source:
    | { readonly kind: 'data'; readonly format: string; readonly dataStart: number }
    | { readonly kind: 'select'; readonly start: number; readonly end: number }
    | InputCall
    /** Neither FORMAT nor VALUES nor SELECT yet: the rest may be in the request's body. */
    | { readonly kind: 'open' };
};

/** `SELECT … FROM input('structure') … FORMAT name`: a query over the request's data. */
export type InputCall = {
  readonly kind: 'input';
  /** Of the SELECT. */
  readonly start: number;
  /** Of `input`, its brackets, and the FORMAT clause. */
  readonly callStart: number;
  readonly open: number;
  readonly close: number;
  readonly formatStart: number;
  readonly format: string;
  readonly dataStart: number;
};

const selectWords = new Set(['SELECT', 'WITH', 'FROM', '(']);
const expressionWords = new Set(
  'SELECT DISTINCT BY WHERE PREWHERE HAVING ON AND OR NOT IN LIKE ILIKE BETWEEN CASE WHEN THEN ELSE AS'.split(
    ' ',
  ),
);
const sessionWords = new Set(['SET', 'USE', 'BEGIN', 'COMMIT', 'ROLLBACK']);

/** Says what kind of statement a text is. */
export function readStatement(sql: string): Statement {
  if (isShellCommand(sql)) {
    const message = `Syntax error: failed at position 1 (${sql.trim().slice(0, 40)})`;
    return { kind: 'refused', code: 62, type: 'SYNTAX_ERROR', message };
  }
  const first = tokens(sql).next();
  if (first.done === true) return { kind: 'empty' };
  if (first.value.word === 'INSERT') {
    const insert = readInsert(sql);
    return insert ?? readOther(sql, first.value);
  }
  return readOther(sql, first.value);
}

function readOther(sql: string, first: Token): Statement {
  let before: Token | undefined;
  let previous: Token | undefined;
  /** A word FORMAT with a name behind it; a clause only if nothing but SETTINGS follows. */
  let format: Token | undefined;
  let formatNameEnd = -1;
  let semicolon: Token | undefined;
  let end = first.end;
  let inserts = false;
  let temporary = false;
  for (const token of tokens(sql)) {
    if (token.depth === 0 && token.word === ';') {
      semicolon ??= token;
      continue;
    }
    if (semicolon !== undefined) {
      const place = `failed at position ${semicolon.start + 1} (end of query)`;
      const message = `Syntax error (Multi-statements are not allowed): ${place}`;
      return { kind: 'refused', code: 62, type: 'SYNTAX_ERROR', message };
    }
    if (token.depth === 0) {
      if (previous?.word === 'INTO' && token.word === 'OUTFILE') {
        const message = 'INTO OUTFILE is not allowed';
        return { kind: 'refused', code: 358, type: 'INTO_OUTFILE_NOT_ALLOWED', message };
      }
      if (formatNameEnd === previous?.end && token.word !== 'SETTINGS') format = undefined;
      if (previous?.word === 'FORMAT' && token.kind === 'word' && !awaitsExpression(before)) {
        format = previous;
        formatNameEnd = token.end;
      }
      if (token.word === 'INSERT') inserts = true;
      if (token.word === 'TEMPORARY') temporary = true;
      before = previous;
      previous = token;
    }
    end = token.end;
  }
  if (selectWords.has(first.word) && !inserts) return { kind: 'select', format, end };
  if (temporary || sessionWords.has(first.word)) return { kind: 'session', end };
  return { kind: first.word === 'KILL' ? 'kill' : 'other', end };
}

/** True when an expression has to follow, so that a word `format` there is a column. */
function awaitsExpression(token: Token | undefined): boolean {
  if (token === undefined) return true;
  if (token.kind === 'word') return expressionWords.has(token.word);
  return token.kind === 'punctuation' && !/[)\]}*]/.test(token.word);
}

/** Reads an INSERT up to its data. Undefined: not in a form that this knows; the engine says what is wrong. */
function readInsert(sql: string): InsertText | undefined {
  const cursor = new TokenCursor(sql);
  for (const word of ['INSERT', 'INTO', 'TABLE']) cursor.take(word);
  if (!skipTarget(cursor)) return undefined;
  const targetEnd = cursor.previousEnd;
  let settings: InsertText['settings'];
  if (cursor.take('SETTINGS')) {
    const start = cursor.token?.start ?? sql.length;
    while (cursor.token !== undefined && !isSourceWord(cursor.token)) cursor.next();
    settings = { start, end: cursor.previousEnd };
  }
  const source = readSource(sql, cursor);
  return source === undefined ? undefined : { kind: 'insert', targetEnd, settings, source };
}

/** `db.table`, `{name:Identifier}` or `FUNCTION name(…) [PARTITION BY …]`, then `[(columns)]`. */
function skipTarget(cursor: TokenCursor): boolean {
  const isFunction = cursor.take('FUNCTION');
  do if (!cursor.takeName()) return false;
  while (cursor.take('.'));
  if (isFunction && cursor.is('(')) cursor.skipBrackets();
  if (cursor.take('PARTITION')) {
    while (cursor.token?.kind === 'word') cursor.next();
    if (cursor.is('(')) cursor.skipBrackets();
  }
  if (cursor.is('(') && !cursor.bracketsHoldSelect()) cursor.skipBrackets();
  return true;
}

function readSource(sql: string, cursor: TokenCursor): InsertText['source'] | undefined {
  const token = cursor.token;
  switch (token?.word) {
    case undefined:
    case ';':
      return { kind: 'open' };
    case 'VALUES':
      return { kind: 'data', format: 'Values', dataStart: token?.end ?? sql.length };
    case 'FORMAT': {
      cursor.next();
      const name = cursor.token;
      if (name?.kind !== 'word') return undefined;
      const dataStart = dataStartBehind(sql, name.end);
      return { kind: 'data', format: sql.slice(name.start, name.end), dataStart };
    }
    case 'SELECT':
    case 'WITH':
    case '(':
      return readInsertSelect(sql, cursor);
    default:
      return undefined;
  }
}

function readInsertSelect(sql: string, cursor: TokenCursor): InsertText['source'] {
  const start = cursor.token?.start ?? sql.length;
  let call: { callStart: number; open: number; close: number } | undefined;
  let end = start;
  while (cursor.token !== undefined) {
    const token = cursor.token;
    cursor.next();
    if (token.word === 'INPUT' && cursor.is('(')) {
      const open = cursor.token.start;
      cursor.skipBrackets();
      call = { callStart: token.start, open, close: cursor.previousEnd - 1 };
      end = cursor.previousEnd;
      continue;
    }
    const name = cursor.token;
    if (call !== undefined && token.word === 'FORMAT' && token.depth === 0 && name !== undefined) {
      const format = sql.slice(name.start, name.end);
      const dataStart = dataStartBehind(sql, name.end);
      return { kind: 'input', start, ...call, formatStart: token.start, format, dataStart };
    }
    if (token.word !== ';') end = cursor.previousEnd;
  }
  return { kind: 'select', start, end };
}

/** Words that the engine's command line takes as commands of its own; to a server they are no SQL. */
function isShellCommand(sql: string): boolean {
  if (sql.length > 1000) return false;
  const text = sql.replace(/^[;\s]+|[;\s]+$/g, '');
  return /^(exit|quit|logout|q|:q|ls|clear|\/clear|\\.*|\?\?.*)$/is.test(text);
}

/** Data begins behind the format's name, optional spaces and one line break. */
function dataStartBehind(sql: string, nameEnd: number): number {
  let position = nameEnd;
  while (position < sql.length && /[ \t;\r]/.test(sql[position] as string)) position += 1;
  return sql[position] === '\n' ? position + 1 : position;
}

function isSourceWord(token: Token): boolean {
  return token.depth === 0 && ['FORMAT', 'VALUES', 'SELECT', 'WITH', 'FROM', ';', '('].includes(token.word);
}
