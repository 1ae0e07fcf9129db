// From a pasted text or a CSV file to the users that it names.

import { lengths } from '../../contract/lengths.js';

export type UserKind = 'identity' | 'user_id' | 'anonymous_id';

export type UserList = {
  /** As the deletion API takes them, each once. */
  readonly users: readonly Readonly<Partial<Record<UserKind, string>>>[];
  readonly repeated: number;
  /** Lines that name nobody, with their numbers from 1. */
  readonly bad: readonly { readonly line: number; readonly text: string }[];
};

const headers: Readonly<Record<string, UserKind>> = {
  identity: 'identity',
  email: 'identity',
  'e-mail': 'identity',
  user_id: 'user_id',
  anonymous_id: 'anonymous_id',
};

/**
 * The users of a text. If its first line names the column, it is CSV; else each whole line is one user, even with commas.
 * Blanks around a name are not part of it; empty lines are skipped.
 */
export function readUserList(text: string, kind: UserKind): UserList {
  const lines = text.replace(/^\uFEFF/, '').split(/\r\n|\r|\n/);
  const first = cellsOf(lines[0] ?? '').map((cell) => cell.trim().toLowerCase());
  const named = first.findIndex((cell) => Object.hasOwn(headers, cell) && headers[cell] === kind);
  const seen = new Set<string>();
  const bad: { line: number; text: string }[] = [];
  let repeated = 0;
  for (let at = named === -1 ? 0 : 1; at < lines.length; at += 1) {
    const line = lines[at] ?? '';
    if (line.trim() === '') continue;
    const name = (named === -1 ? line : (cellsOf(line)[named] ?? '')).trim();
    if (!isUser(name, kind)) bad.push({ line: at + 1, text: line });
    else if (seen.has(name)) repeated += 1;
    else seen.add(name);
  }
  return { users: [...seen].map((name) => ({ [kind]: name })), repeated, bad };
}

function isUser(name: string, kind: UserKind): boolean {
  if (kind === 'user_id') return /^(0|[1-9]\d{0,15})$/.test(name) && Number.isSafeInteger(Number(name));
  return name !== '' && [...name].length <= lengths.identityMax;
}

/** The cells of a line of CSV. */
function cellsOf(line: string): string[] {
  if (!line.includes('"')) return line.split(line.includes(';') && !line.includes(',') ? ';' : ',');
  return [...line.matchAll(/(?:^|[,;])(?:"((?:[^"]|"")*)"|([^,;]*))/g)].map(
    ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? '',
  );
}
