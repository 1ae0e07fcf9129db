// Owns the little that this server must know of SQL text: where tokens begin and end, what kind of
// statement it is, where its FORMAT clause is, and where the data of an INSERT begins. The engine parses;
// this only finds the places where a clause has to be put in. Pure functions.

export type Token = {
  readonly kind: 'word' | 'quoted' | 'number' | 'punctuation';
  readonly start: number;
  readonly end: number;
  /** Depth of brackets around the token; a bracket has the depth outside of it. */
  readonly depth: number;
  /** The text of a word in upper case, of punctuation as it is; empty for the others. */
  readonly word: string;
};

const wordPattern = /[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*/y;
const numberPattern = /[0-9][\w.]*/y;
const heredocPattern = /\$\w*\$/y;

/** Splits SQL text into tokens without white space and comments, lazily: data behind an INSERT is never read. */
export function* tokens(sql: string, from = 0): Generator<Token> {
  let position = from;
  let depth = 0;
  while (position < sql.length) {
    const char = sql[position] as string;
    const start = position;
    if (isSpace(char)) {
      position += 1;
      continue;
    }
    if (sql.startsWith('--', position) || (char === '#' && /[ !]/.test(sql[position + 1] ?? ''))) {
      const newline = sql.indexOf('\n', position);
      position = newline === -1 ? sql.length : newline + 1;
      continue;
    }
    if (sql.startsWith('/*', position)) {
      const close = sql.indexOf('*/', position + 2);
      position = close === -1 ? sql.length : close + 2;
      continue;
    }
    if (char === "'" || char === '"' || char === '`') {
      position = quotedEnd(sql, position);
      yield { kind: 'quoted', start, end: position, depth, word: '' };
      continue;
    }
    const heredoc = match(heredocPattern, sql, position);
    if (heredoc !== undefined) {
      const close = sql.indexOf(heredoc, position + heredoc.length);
      position = close === -1 ? sql.length : close + heredoc.length;
      yield { kind: 'quoted', start, end: position, depth, word: '' };
      continue;
    }
    const word = match(wordPattern, sql, position);
    if (word !== undefined) {
      position += word.length;
      yield { kind: 'word', start, end: position, depth, word: word.toUpperCase() };
      continue;
    }
    const number = match(numberPattern, sql, position);
    if (number !== undefined) {
      position += number.length;
      yield { kind: 'number', start, end: position, depth, word: '' };
      continue;
    }
    if (char === ')' || char === ']' || char === '}') depth -= 1;
    position += 1;
    yield { kind: 'punctuation', start, end: position, depth, word: char };
    if (char === '(' || char === '[' || char === '{') depth += 1;
  }
}

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
  const cursor = new Cursor(sql);
  cursor.take('INSERT');
  cursor.take('INTO');
  cursor.take('TABLE');
  const isFunction = cursor.take('FUNCTION');
  if (!cursor.takeName()) return undefined;
  while (cursor.take('.')) if (!cursor.takeName()) return undefined;
  if (isFunction && cursor.is('(')) cursor.skipBrackets();
  if (cursor.take('PARTITION')) {
    cursor.take('BY');
    while (cursor.token !== undefined && !cursor.is('(') && cursor.token.kind === 'word') cursor.next();
    if (cursor.is('(')) cursor.skipBrackets();
  }
  if (cursor.is('(') && !cursor.bracketsHoldSelect()) cursor.skipBrackets();
  const targetEnd = cursor.previousEnd;
  let settings: { start: number; end: number } | undefined;
  if (cursor.take('SETTINGS')) {
    const start = cursor.token?.start ?? sql.length;
    while (cursor.token !== undefined && !isSourceWord(cursor.token)) cursor.next();
    settings = { start, end: cursor.previousEnd };
  }
  const token = cursor.token;
  if (token === undefined || token.word === ';')
    return { kind: 'insert', targetEnd, settings, source: { kind: 'open' } };
  if (token.word === 'VALUES') {
    return {
      kind: 'insert',
      targetEnd,
      settings,
      source: { kind: 'data', format: 'Values', dataStart: token.end },
    };
  }
  if (token.word === 'FORMAT') {
    cursor.next();
    const name = cursor.token;
    if (name === undefined || name.kind !== 'word') return undefined;
    return {
      kind: 'insert',
      targetEnd,
      settings,
      source: {
        kind: 'data',
        format: sql.slice(name.start, name.end),
        dataStart: dataStartBehind(sql, name.end),
      },
    };
  }
  if (token.word === 'SELECT' || token.word === 'WITH' || token.word === '(') {
    return { kind: 'insert', targetEnd, settings, source: readInsertSelect(sql, cursor) };
  }
  return undefined;
}

function readInsertSelect(sql: string, cursor: Cursor): InsertText['source'] {
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
    } else if (
      call !== undefined &&
      token.word === 'FORMAT' &&
      token.depth === 0 &&
      cursor.token !== undefined
    ) {
      const name = cursor.token;
      const format = sql.slice(name.start, name.end);
      const dataStart = dataStartBehind(sql, name.end);
      return { kind: 'input', start, ...call, formatStart: token.start, format, dataStart };
    }
    if (token.word !== ';') end = cursor.previousEnd;
  }
  return { kind: 'select', start, end };
}

/** Names of placeholders `{name:Type}` in a text, and perhaps a few more. */
export function placeholderNames(sql: string): string[] {
  return [...sql.matchAll(/\{\s*([A-Za-z_]\w*)\s*:/g)].map((found) => found[1] as string);
}

/** A string literal, safe for any content. */
export function quote(text: string): string {
  return `'${text.replace(/[\\'\0]/g, (char) => (char === '\0' ? '\\0' : `\\${char}`))}'`;
}

/** An identifier, safe for any content. */
export function quoteIdentifier(name: string): string {
  return `\`${name.replace(/[\\`]/g, '\\$&')}\``;
}

/** True for a name that may stand in SQL text unquoted (settings, formats). */
export function isPlainName(name: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name);
}

/** Words that the engine's command line takes as commands of its own; to a server they are no SQL. */
function isShellCommand(sql: string): boolean {
  if (sql.length > 1000) return false;
  const text = sql.replace(/^[;\s]+|[;\s]+$/g, '');
  return /^(exit|quit|logout|учше|йгше|дщпщге|q|й|:q|ls|clear|\/clear|\\.*|\?\?.*)$/is.test(text);
}

function isSpace(char: string): boolean {
  return char === ' ' || (char >= '\t' && char <= '\r') || char === '\0' || char === '\ufeff';
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

function quotedEnd(sql: string, start: number): number {
  const mark = sql[start] as string;
  let position = start + 1;
  while (position < sql.length) {
    const char = sql[position];
    if (char === '\\') position += 2;
    else if (char !== mark) position += 1;
    else if (sql[position + 1] === mark) position += 2;
    else return position + 1;
  }
  return sql.length;
}

function match(pattern: RegExp, sql: string, position: number): string | undefined {
  pattern.lastIndex = position;
  return pattern.exec(sql)?.[0];
}

class Cursor {
  readonly #sql: string;
  readonly #tokens: Generator<Token>;
  token: Token | undefined;
  previousEnd = 0;

  constructor(sql: string) {
    this.#sql = sql;
    this.#tokens = tokens(sql);
    this.token = this.#tokens.next().value as Token | undefined;
  }

  next(): void {
    this.previousEnd = this.token?.end ?? this.#sql.length;
    this.token = this.#tokens.next().value as Token | undefined;
  }

  is(word: string): this is { token: Token } {
    return this.token?.word === word;
  }

  take(word: string): boolean {
    if (!this.is(word)) return false;
    this.next();
    return true;
  }

  takeName(): boolean {
    const token = this.token;
    if (token === undefined) return false;
    if (token.kind === 'punctuation' && token.word === '{') {
      this.skipBrackets();
      return true;
    }
    if (token.kind !== 'word' && token.kind !== 'quoted') return false;
    this.next();
    return true;
  }

  skipBrackets(): void {
    const depth = this.token?.depth ?? 0;
    this.next();
    while (this.token !== undefined && !(this.token.depth === depth && /[)\]}]/.test(this.token.word)))
      this.next();
    this.next();
  }

  bracketsHoldSelect(): boolean {
    const inside = tokens(this.#sql, this.token?.end ?? 0).next().value as Token | undefined;
    return inside?.word === 'SELECT' || inside?.word === 'WITH';
  }
}
