// Owns the tokens of SQL text, by the rules of ClickHouse's lexer, and what is needed to write some: quoting.

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

/** Reads tokens one after another. */
export class TokenCursor {
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

function isSpace(char: string): boolean {
  return char === ' ' || (char >= '\t' && char <= '\r') || char === '\0' || char === '\ufeff';
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
