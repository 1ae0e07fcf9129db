// The only reader of lists of users, pasted or from a file. It returns no users until it is clear which column holds the names, since
// a misread record would delete the wrong person. Records that it cannot read are returned with their lines and the reasons.

import { parse } from 'csv-parse/sync';
import { lengths } from '../../contract/lengths.js';
import { kindOfContent } from './content-kind.js';
import { declaredSeparator, mostFrequent, type Separator, separators, separatorsIn } from './separator.js';
import { createDecoder, type Encoding, markedEncoding, WrongEncoding } from './text.js';

export type UserKind = 'identity' | 'user_id' | 'anonymous_id';

/** What a person has decided about a list; what is undefined is found in the list itself. */
export type ListChoices = {
  /** `none`: each line is one name. `|` is never guessed, since it is part of many names. */
  readonly separator?: Separator | '|' | 'none' | undefined;
  /** The position of the column of names, from 0. */
  readonly column?: number | undefined;
  /** Whether the first line names the columns. */
  readonly isHeading?: boolean | undefined;
};

export type UserList = {
  /** As the deletion API takes them, each once. Empty while there is a question or a fault. */
  readonly users: readonly Readonly<Partial<Record<UserKind, string>>>[];
  /** How many records name a user again. */
  readonly repeated: number;
  /** Records that are left out, each with the line on which it ends, from 1. */
  readonly bad: readonly BadRecord[];
  /** Why the list cannot be read at all. */
  readonly fault?: string;
  /** What a person has to decide first. */
  readonly question?: 'column' | 'heading';
  /** How the list is read: the cells of the first record, and the choices that were made or found. */
  readonly first: readonly string[];
  readonly separator: string;
  readonly column?: number;
  readonly isHeading?: boolean;
};

export type BadRecord = { readonly line: number; readonly text: string; readonly why: string };

type Cells = { readonly cells: readonly string[]; readonly line: number };

const headings: Readonly<Record<string, UserKind>> = {
  identity: 'identity',
  email: 'identity',
  userid: 'user_id',
  anonymousid: 'anonymous_id',
};

/** The kind of user that a heading stands for: `E-Mail`, `user_id`, `Anonymous ID`. Other words are not guessed. */
function kindOfHeading(cell: string): UserKind | undefined {
  const word = cell.toLowerCase().replace(/[\s_-]+/g, '');
  return Object.hasOwn(headings, word) ? headings[word] : undefined;
}

/** The text of a file, or why it has none. Windows-1252 is read only if `asked`; `mayBeWindows1252`: it may help to ask for that. */
export function readListFile(
  bytes: Uint8Array,
  asked?: Encoding,
): { text: string } | { fault: string; mayBeWindows1252: boolean } {
  const kind = kindOfContent(bytes.subarray(0, 4096));
  if (kind !== undefined) return { fault: `It is ${kind.name}: ${kind.advice}.`, mayBeWindows1252: false };
  const encoding = markedEncoding(bytes) ?? asked ?? 'utf-8';
  try {
    return { text: createDecoder(encoding)(bytes, true) };
  } catch (error) {
    if (!(error instanceof WrongEncoding)) throw error;
    const mayBeWindows1252 = encoding === 'utf-8' && markedEncoding(bytes) === undefined;
    return { fault: `${error.message[0]?.toUpperCase()}${error.message.slice(1)}.`, mayBeWindows1252 };
  }
}

/** Reads the users of a text that was pasted or comes from a file. Pure. */
export function readUserList(pasted: string, kind: UserKind, choices: ListChoices = {}): UserList {
  const marked = pasted.replace(/^\ufeff/, '');
  const declared = declaredSeparator(marked);
  const text = marked.slice(declared?.end ?? 0);
  const empty: UserList = { users: [], repeated: 0, bad: [], first: [], separator: 'none' };
  if (text.trim() === '') return empty;
  if (text.includes('\0'))
    return {
      ...empty,
      fault: 'It has NUL characters: it is not text, or it is UTF-16 without a byte order mark.',
    };
  const separator = choices.separator ?? declared?.separator ?? separatorOf(text);
  let records: Cells[];
  try {
    records = recordsOf(text, separator, declared === undefined ? 0 : 1);
  } catch (error) {
    return { ...empty, separator, fault: faultOf(error as CsvFault, declared === undefined ? 0 : 1) };
  }
  const first = records[0]?.cells ?? [];
  const read = { ...empty, first, separator };
  const headed = first.flatMap((cell, at) => (kindOfHeading(cell) === kind ? [at] : []));
  const hasHeading = first.some((cell) => kindOfHeading(cell) !== undefined);
  const isOneColumn = first.length === 1;
  const column =
    choices.column ?? (headed.length === 1 ? headed[0] : isOneColumn && !hasHeading ? 0 : undefined);
  if (column === undefined || column >= first.length) return { ...read, question: 'column' };
  const isHeading =
    choices.isHeading ??
    (hasHeading ? true : isOneColumn && !looksLikeHeading(records, kind) ? false : undefined);
  if (isHeading === undefined) return { ...read, column, question: 'heading' };
  const isUndivided = choices.separator === undefined && separator === 'none';
  const seen = new Set<string>();
  const bad: BadRecord[] = [];
  let repeated = 0;
  for (const { cells, line } of records.slice(isHeading ? 1 : 0)) {
    const name = cells[column]?.trim() ?? '';
    const why =
      cells.length !== first.length
        ? `has ${cellsText(cells.length)}, but the first line has ${first.length}`
        : (whyWrong(name, kind) ??
          (isHeading && cells.every((cell, at) => cell === first[at])
            ? 'repeats the first line'
            : undefined) ??
          (isUndivided ? whyDivided(name, hasHeading) : undefined));
    if (why !== undefined) bad.push({ line, text: cells.join(separator === 'none' ? '' : separator), why });
    else if (seen.has(name)) repeated += 1;
    else seen.add(name);
  }
  return { ...read, column, isHeading, users: [...seen].map((name) => ({ [kind]: name })), repeated, bad };
}

/** The separator of a text: the only one that makes a heading known, else the most frequent one. */
function separatorOf(text: string): string {
  const found = separatorsIn(text);
  const there = separators.filter((one) => found[one] > 0);
  const known = there.filter((one) => {
    const line = /^[\r\n]*([^\r\n]*)/.exec(text)?.[1] ?? '';
    return line
      .split(one)
      .some((cell) => kindOfHeading(cell.replace(/^\s*"|"\s*$/g, '').trim()) !== undefined);
  });
  return (known.length === 1 ? known[0] : mostFrequent(found)) ?? 'none';
}

function recordsOf(text: string, separator: string, linesBefore: number): Cells[] {
  const read = parse(text, {
    // NUL separates nothing: texts with it were refused before.
    delimiter: separator === 'none' ? '\0' : separator,
    record_delimiter: ['\r\n', '\n', '\r'],
    info: true,
    relax_quotes: true,
    relax_column_count: true,
    skip_empty_lines: true,
    trim: true,
  }) as unknown as { record: string[]; info: { lines: number } }[];
  return read
    .map(({ record, info }) => ({ cells: record, line: info.lines + linesBefore }))
    .filter(({ cells }) => cells.some((cell) => cell.trim() !== ''));
}

type CsvFault = Error & { readonly code?: string; readonly lines?: number };

function faultOf({ code, lines = 0, message }: CsvFault, linesBefore: number): string {
  const line = lines + linesBefore;
  if (code === 'CSV_QUOTE_NOT_CLOSED') return 'A quote that opens a cell is never closed.';
  if (code === 'CSV_NON_TRIMABLE_CHAR_AFTER_CLOSING_QUOTE')
    return `There is text after a closing quote on line ${line}. Within a quoted cell, a quote is written twice.`;
  return message;
}

/** Whether the first record looks like a heading: its name does not have the usual form, and those of all others do. */
function looksLikeHeading(records: readonly Cells[], kind: UserKind): boolean {
  const form = { identity: /@/, user_id: /^\d+$/, anonymous_id: /\d/ }[kind];
  const [first, ...others] = records.map(({ cells }) => form.test(cells[0] ?? ''));
  return first === false && others.length > 0 && others.every(Boolean);
}

/** Why a cell names no user. */
function whyWrong(name: string, kind: UserKind): string | undefined {
  if (name === '') return 'names no user';
  if (name.includes('\ufffd')) return 'has a character that was lost (\ufffd)';
  const invisible = invisibleCharacter.exec(name)?.[0];
  if (invisible !== undefined) return `has an invisible character (U+${codeOf(invisible)})`;
  if (kind === 'user_id' && !(/^(0|[1-9]\d{0,15})$/.test(name) && Number.isSafeInteger(Number(name))))
    return 'is not a user id, which is a whole number';
  return [...name].length > lengths.identityMax
    ? `has more than ${lengths.identityMax} characters`
    : undefined;
}

/**
 * Line breaks, and other characters that a page does not show: with one of them, a name that looks right names nobody, or two different
 * names look the same. Zero-width joiners are allowed, since some scripts need them.
 */
const invisibleCharacter =
  /(?!\t)[\p{Cc}\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/u;

function codeOf(character: string): string {
  return (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
}

/** Why a line of a list without a separator may be several cells. A person can decide that each line is one name. */
function whyDivided(name: string, hasHeading: boolean): string | undefined {
  const isDivided = hasHeading ? /\t|[,;]$/.test(name) : /[;\t]|,\S|,$/.test(name);
  return isDivided ? 'seems to have several cells; say what separates them' : undefined;
}

function cellsText(count: number): string {
  return count === 1 ? '1 cell' : `${count} cells`;
}
